"""The Program: its data, its text and its verifier."""
