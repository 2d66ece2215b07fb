"""How fast the machine is, and the programs that measure it."""
