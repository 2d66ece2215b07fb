"""nccl-tests: its command line, its table, and its findings."""
