"""Switch operating systems, each behind the same contract: load a candidate, compare, commit with a timed way back, confirm, verify."""
