"""nccl-tests: its command line, its table, and what it can show."""
