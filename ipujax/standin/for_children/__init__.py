"""Folders that `install_popdist()` adds to the path of the Python processes it starts."""
