"""What is due, for each node, switch and file of a site, from the records."""
