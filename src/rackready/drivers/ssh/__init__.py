"""One SSH layer for nodes, switches and the Slurm controller: targets, pinned host keys, connections, commands."""
