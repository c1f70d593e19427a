"""What a whole program costs: when each IPU does what, and what memory holds meanwhile."""
