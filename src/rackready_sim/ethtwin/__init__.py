"""The fabric twin of Ethernet: the planned underlay in network namespaces, routed by the real FRR."""
