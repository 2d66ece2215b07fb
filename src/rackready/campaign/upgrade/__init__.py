"""Upgrades of nodes in waves: plan, order, drain, way back, stop rule."""
