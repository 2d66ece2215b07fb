"""Phases that nodes apply themselves: orders, their reports, and the first contact with a node."""
