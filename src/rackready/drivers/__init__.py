"""Drivers for the outside world: BMCs, hosts, switches, configuration tools, schedulers. One contract per family."""
