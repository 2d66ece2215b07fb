"""Gates that look at GPUs, their memory, links and clocks."""
