"""A simulated UFM: its REST interface on the state of a simulated InfiniBand fabric."""
