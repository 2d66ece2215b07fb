"""Sizing: what a language model needs of GPUs, how fast they can be at most, and what a result costs. Pure functions of a shape and of profiles."""
