"""Folders that `install()` adds to the path of the Python processes that this one starts."""
