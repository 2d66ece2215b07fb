"""The proof that a play would change nothing: its recorded steps are read again on the node, in one connection."""
