"""The switch: its configuration command line, and what configuration does to real bridges."""
