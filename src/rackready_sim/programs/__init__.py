"""Small programs that answer for the hardware inside the simulated machines."""
