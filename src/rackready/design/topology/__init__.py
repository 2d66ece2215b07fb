"""Compute fabrics: sized, wired and proved."""
