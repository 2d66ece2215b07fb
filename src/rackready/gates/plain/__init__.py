"""Documents of our scripts (``ondevice``), made from captured outputs of a node's own tools.

Nothing is guessed: a missing fact is an error that names it, and the command that prints it.
"""
