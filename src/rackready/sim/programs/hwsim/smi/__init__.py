"""nvidia-smi."""
