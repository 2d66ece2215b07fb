"""Makes the documents of our own scripts (``ondevice``) from what the tools of a node print themselves, for outputs that were captured elsewhere.

Nothing is guessed: a fact that the outputs lack is an error that names it, and the command that gives it.
"""
