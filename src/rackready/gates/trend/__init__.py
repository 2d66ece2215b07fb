"""Figures of gates over time: the past of each unit, and whether it got worse."""
