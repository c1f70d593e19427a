"""Checkpoints: pytrees of arrays in files, one file or folder for each step.

`leaves` converts arrays to what a file can hold, and back; `shards` moves them between devices and
the host; `contents` describes a checkpoint in JSON; `npz` and `with_orbax` are the two kinds of
files; `folder` lists them and decides which of them are kept; `store` puts that together.
`position` is the position in a data set.
"""

from . import save_and_restore as save_and_restore
from . import store as store
from .folder import find_checkpoint as find_checkpoint
from .position import Position as Position
from .position import TrackedIterator as TrackedIterator
from .position import resume_iterator as resume_iterator
