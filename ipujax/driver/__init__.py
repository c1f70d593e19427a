"""The path from a user's function to a compiled program: trace, lower, compile, call."""
