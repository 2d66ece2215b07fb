"""Preflight of a hypervisor: why it cannot give a device to a guest."""
