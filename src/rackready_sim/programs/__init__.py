"""What runs inside the simulated machines: their hardware, answered by small programs."""
