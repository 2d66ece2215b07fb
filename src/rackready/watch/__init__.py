"""Nodes in production: faults are seen, drained, proven and ticketed (`rackready watch`)."""
