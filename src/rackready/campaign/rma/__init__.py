"""A node on its way to its vendor and back (`rackready rma`)."""
