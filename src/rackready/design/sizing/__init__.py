"""Sizing of language models: required GPUs, highest speed and cost, as pure functions of shape and profiles."""
