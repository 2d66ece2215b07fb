"""Planning and running gates: nodes, commands, their order and their connections."""
