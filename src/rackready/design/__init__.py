"""Pure functions from intent to per-device facts, and the loader that reads the intent."""
