"""Recurrences over time as one scan each, with derivatives of their own."""
