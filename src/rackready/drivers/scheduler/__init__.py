"""Schedulers that nodes are handed to, each behind the same contract: hold, release, drain; never undo what somebody else drained."""
