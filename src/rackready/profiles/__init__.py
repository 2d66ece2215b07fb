"""Profiles as data (``gpu/``, ``platform/``, ``switch/``, ``software/``, ``gate_sets/``) and their loader."""
