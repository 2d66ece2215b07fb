"""Judgement of outputs: bounds, fleet, coverage, and the verdict."""
