"""Hardware of one simulated machine. Standard library only: it is copied into the machine and runs there."""
