"""Checkpoints: pytrees of arrays on disk, none left half done by a killed process."""

from __future__ import annotations

from ipujax.checkpoints import store
from ipujax.checkpoints.checkpoint_checks import check
from ipujax.ground import PyTree, StrPath, get_joined_instance


@check.guard
def save(directory: StrPath, step: int, tree: PyTree, keep: int | None = 5) -> str | None:
    """Saves a tree, one leaf after the other, from the devices where it is.

    Args:
      directory: where; it is made if it is not there.
      step: 0 or more. A checkpoint of this step that is there already is replaced.
      tree: a pytree of arrays and numbers.
      keep: how many checkpoints stay: this one, and of the others those of the latest steps; None
        or 0 for all of them.

    Returns:
      The path of the file or folder; None in a process that leaves the writing to the first.

    Raises:
      CheckpointError: (a `ValueError`) a directory that is none or cannot be written, a full disk,
        two leaves of one name, an array that cannot be read or lies in part on devices of other
        processes. The checkpoints that were there are as they were.
      CheckpointTypeError: (a `TypeError`) arguments of a wrong type, leaves that are no numbers.
    """
    check.require_path(directory, "the directory")
    number = check.require_integer(step, "step", at_least=0)
    number_to_keep = 0 if keep is None else check.require_integer(keep, "keep", at_least=0)
    process = get_joined_instance()
    if process is not None and process.index > 0:
        return None
    return store.save_checkpoint(directory, number, tree, number_to_keep)


@check.guard
def restore(directory: StrPath, like: object = None, step: int | None = None) -> PyTree:
    """Reads the tree of a checkpoint.

    Args:
      directory: where.
      like: a pytree of arrays, numbers or `jax.ShapeDtypeStruct`: the structure, and of each
        leaf the shape and dtype that it must have. Leaves are of the kind that they are here:
        NumPy's arrays, Python's numbers, or else arrays of JAX. These get the sharding of the
        array or `jax.ShapeDtypeStruct`, each device its own shard and no more; one without a
        sharding has them on JAX's default device.
      step: None for the last one.

    Returns:
      The tree; without `like` a dict from the leaves' names to NumPy arrays, and arrays of JAX for
      typed keys.

    Raises:
      CheckpointError: (a `ValueError`) no checkpoint there, or none of this step; one that holds
        another tree than `like`, with all names that are missing, too many or of other shapes; a
        sharding that does not divide its leaf's shape; a file that is damaged, or of others.
      CheckpointImportError: (also an `ImportError`) one that orbax has written, without orbax.
      CheckpointTypeError: (a `TypeError`) arguments of a wrong type.
    """
    check.require_path(directory, "the directory")
    number = None if step is None else check.require_integer(step, "step", at_least=0)
    return store.restore_checkpoint(directory, like, number).tree


@check.guard
def latest_step(directory: StrPath) -> int | None:
    """Returns the step of the last checkpoint, or None if there is none.

    Raises:
      CheckpointError: (a `ValueError`) a file in place of the directory, or one that cannot be
        read.
      CheckpointTypeError: (a `TypeError`) what is no path.
    """
    check.require_path(directory, "the directory")
    return store.latest_step(directory)
