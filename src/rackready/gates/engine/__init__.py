"""Plan and run gates: which nodes, which commands, in which order, over which connection."""
