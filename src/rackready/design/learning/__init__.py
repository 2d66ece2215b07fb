"""Platform profiles from what a machine reports about itself."""
