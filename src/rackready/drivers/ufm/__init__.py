"""NVIDIA UFM Enterprise over its REST interface: reads the fabric, and sets the partitions of tenants."""
