"""Pydantic models of written files and of records. Imports nothing else of rackready."""
