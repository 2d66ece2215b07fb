"""Programs and kernel trees of the host around the GPUs: processors, memory, drives, clock, optics."""
