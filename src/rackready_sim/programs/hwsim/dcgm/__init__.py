"""DCGM: the host engine and its command line."""
