"""Gates on GPUs, their memory, links and clocks."""
