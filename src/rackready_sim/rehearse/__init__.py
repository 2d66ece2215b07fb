"""Rehearsal of a site: a smaller one of the same kind, deployed on the simulated rack of this machine."""
