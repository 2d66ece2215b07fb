"""The vendor's packages as the simulated mirror carries them: same names, versions, relations and services, programs of our own."""

from rackready_sim.packages.repo import build_repo

__all__ = ["build_repo"]
