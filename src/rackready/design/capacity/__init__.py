"""Power, cooling, weight and units: what every rack needs, and what is left of its supply when any one part is lost."""
