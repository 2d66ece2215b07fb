"""Gates of the compute fabric: collectives, latency, incast, training step."""
