"""The simulated rack: real Linux hosts, BMCs, switches, mirror and scheduler, made on one machine. Only cli and tests import it."""
