"""Checkpoints: pytrees of arrays on disk, written so that a killed process leaves none half done.

    ipu.checkpoint.save("out", step=100, tree=state)
    state = ipu.checkpoint.restore("out", like=state)     # of the last step
    arrays = ipu.checkpoint.restore("out")                # {"variables/dense/kernel": array, ...}

Every dtype of JAX is kept, typed keys too, and the structure comes from `like`: named tuples, as
optax's states are, dataclasses, None. A leaf's name is its path in the tree, joined by slashes:
`jax.tree_util.keystr(path, simple=True, separator="/")`.

Each step has an `.npz`, `ckpt-100.npz`; where orbax is installed (`pip install
ipujax[checkpoint]`), new ones are folders whose arrays orbax writes. A checkpoint is written under
another name, synced and renamed. What killed processes have left unfinished is taken away when the
next one is saved.

Where several processes run a program together, the first of them writes for all, and the others go
on at once. All of them read: give them one directory, which each can see.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
