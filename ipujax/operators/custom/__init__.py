"""Custom operations: compiled functions of the user's, and expressions over elements."""
