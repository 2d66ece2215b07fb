"""What people write and what we record, as pydantic models. Imports nothing else of rackready."""
