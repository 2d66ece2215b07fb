"""A gate set on idle nodes in production, a few at a time, each put back as it was."""
