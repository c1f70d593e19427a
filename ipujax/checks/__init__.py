"""Checks of users' arguments: an error names the user's line and how to mend it."""
