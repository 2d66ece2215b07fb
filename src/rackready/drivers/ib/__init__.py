"""InfiniBand: texts of the diagnostics and of opensm, the files that opensm reads, and the planned cables."""
