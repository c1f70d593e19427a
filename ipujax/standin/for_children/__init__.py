"""Folders that `install()` adds to the import path of child processes."""
