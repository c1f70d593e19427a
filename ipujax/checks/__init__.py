"""Checks of what users pass: what is wrong is raised with the user's line, and how to mend it."""
