"""The fabric twin: the planned InfiniBand fabric in ibsim, under the real opensm and its diagnostics."""
