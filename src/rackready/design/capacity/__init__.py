"""Power, cooling, weight and units of every rack, and the supply that remains after any single loss."""
