"""The release of a node: code, wheels, files and sealed variables as objects named by their SHA-256."""
