"""Schedulers that take nodes over, with one contract: drain and release; never undo another person's drain."""
