"""Linear algebra on tiles."""
