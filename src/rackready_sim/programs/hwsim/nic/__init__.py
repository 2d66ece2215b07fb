"""NIC tools."""
