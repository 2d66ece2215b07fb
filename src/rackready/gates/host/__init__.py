"""Gates on the host around the GPUs: CPUs, memory, clock, services, PCIe, drives, firmware, links and optics."""
