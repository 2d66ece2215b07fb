"""Drivers of switch operating systems, with one contract: load, compare, commit with timed revert, confirm, verify."""
