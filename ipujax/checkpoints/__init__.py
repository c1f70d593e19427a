"""Checkpoints: pytrees of arrays in files, one file or folder for each step.

`leaves` makes an array something that a file can hold, and back; `contents` is what a checkpoint
says of itself; `npz` and `with_orbax` are the two kinds of files; `folder` is where they are, and
which of them are kept; `store` puts that together. `position` is where a data set was.
"""
