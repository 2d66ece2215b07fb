"""The world outside: BMCs, hosts, switches, configuration tools and schedulers. One contract per family."""
