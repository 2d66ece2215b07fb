"""Code that is run on nodes: standard library (and what rackready puts beside it) only, so that it works with a node's own Python."""
