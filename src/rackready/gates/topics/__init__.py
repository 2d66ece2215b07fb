"""The gates themselves, one file per topic."""
