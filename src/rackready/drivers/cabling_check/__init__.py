"""Comparison of planned cables with the links that devices report, in no vendor's terms."""
