"""Speed of the machine, and the programs that measure it."""
