"""Records of outputs: captured, imported, judged again, and the identity of what was measured."""
