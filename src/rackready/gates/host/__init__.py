"""Gates of the host around the GPUs: processors, memory, clock, services, PCIe settings, disks, firmware, links and optics."""
