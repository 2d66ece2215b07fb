"""The switch: its configuration command line, and the effects of configuration on real bridges."""
