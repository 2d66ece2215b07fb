"""Captured, imported and stored outputs, and the identity of the measured node."""
