"""The vendor's packages on the simulated mirror: same names, versions, relations and services, with our programs."""

from rackready_sim.packages.repo import build_repo

__all__ = ["build_repo"]
