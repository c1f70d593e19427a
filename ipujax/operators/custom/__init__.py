"""Custom operations: compiled functions of users, and elementwise expressions."""
