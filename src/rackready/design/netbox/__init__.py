"""A site as NetBox holds it, and back."""
