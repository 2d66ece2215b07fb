"""Drift: compares nodes and switches with their site, and changes nothing on them."""
