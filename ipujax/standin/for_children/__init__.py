"""Folders that `install()` of a package puts in the path of processes which this one starts."""
