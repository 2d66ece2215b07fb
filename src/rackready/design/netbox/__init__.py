"""A site as NetBox objects, and back."""
