"""Simulated bare metal: nodes that are QEMU machines with firmware, disks and a network card, not containers."""
