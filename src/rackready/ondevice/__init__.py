"""Code that runs on nodes, with a node's own Python: standard library (and what rackready puts beside it) only."""
