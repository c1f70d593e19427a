"""Checkpoints: pytrees of arrays in files, one file or folder for each step.

`leaves` converts arrays to what a file can hold, and back; `shards` moves them between devices and
the host; `contents` describes a checkpoint in JSON; `npz` and `with_orbax` are the two kinds of
files; `folder` lists them and decides which of them are kept; `store` puts that together.
`position` is the position in a data set.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
