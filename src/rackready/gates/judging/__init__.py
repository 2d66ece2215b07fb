"""Judge outputs: bounds, fleet, coverage, and the verdict that comes of them."""
