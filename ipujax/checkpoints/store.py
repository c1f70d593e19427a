"""Saves a tree to a directory of checkpoints, and restores one from there."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import os
from collections.abc import Generator

import jax

from ipujax.checkpoints import npz, with_orbax
from ipujax.checkpoints.checkpoint_checks import check
from ipujax.checkpoints.contents import Contents, ForeignError
from ipujax.checkpoints.folder import (
    Entry,
    describe_steps,
    find_checkpoint,
    list_checkpoints,
    next_entry,
    select_outdated,
)
from ipujax.checkpoints.leaves import (
    Leaf,
    as_like,
    decode_leaf,
    describe_leaf_mismatch,
    encode_leaf,
    flatten_by_name,
)
from ipujax.checkpoints.position import Position
from ipujax.ground import PyTree, current_instance, files


@check.guard
@dc.dataclass(frozen=True)
class Restored:
    """The step, tree and data set position of a checkpoint.

    Attributes:
      step: when it was made.
      tree: as `like`, or the arrays by their names.
      position: where the data set was, if it is to go on from there.
    """

    step: int
    tree: PyTree
    position: Position | None


def save_checkpoint(
    directory: files.StrPath,
    step: int,
    tree: PyTree,
    keep: int = 5,
    position: Position | None = None,
) -> str:
    """Writes a checkpoint, removes those that are not to be kept, and returns its path.

    Args:
      directory: made if it is not there.
      step: 0 or more.
      tree: a pytree of arrays and numbers.
      keep: how many stay, this one and those of the latest steps; 0 for all.
      position: the position of the data set, to resume training with its next element.

    Raises:
      CheckpointError: what cannot be written; the checkpoints that were there are as they were.
      CheckpointTypeError: a leaf that is no array of numbers.
    """
    pairs = [encode_leaf(name, value) for name, value in flatten_by_name(tree)[0].items()]
    contents = Contents(tuple(leaf for leaf, _ in pairs), position)
    readers = [read for _, read in pairs]
    # Orbax has all processes write one checkpoint together; here each writes its own.
    is_alone = current_instance().count == 1
    kind = with_orbax if is_alone and with_orbax.is_installed() else npz
    with _explain_save_errors(directory, step):
        os.makedirs(directory, exist_ok=True)
        new_entry = next_entry(directory, step, is_file=kind is npz)
        path = os.path.join(directory, new_entry.name)
        kind.write(path, contents, readers)
    for old in select_outdated(list_checkpoints(directory), new_entry, keep):
        try:
            files.remove_at_once(os.path.join(directory, old.name))
        except OSError as error:
            raise check.value_error(
                f"step {step} is saved, but the older {old.name} in {os.fspath(directory)} cannot "
                f"be taken away: {error.strerror}",
                "take it away, or keep more checkpoints",
            ) from error
    return path


def restore_checkpoint(
    directory: files.StrPath, like: PyTree = None, step: int | None = None, *, partly: bool = False
) -> Restored:
    """Reads a checkpoint.

    Args:
      directory: where it is.
      like: a pytree of arrays or `jax.ShapeDtypeStruct`s, which says what it should hold; None
        for all that it has, by name.
      step: None for the last one.
      partly: leave out what stands in the tree beside the keys of the dict `like`; it is not read.

    Raises:
      CheckpointError: none there, another structure, or a file that is not readable.
    """
    entry = find_checkpoint(directory, step)
    path = os.path.join(directory, entry.name)
    kind = npz if entry.is_file else with_orbax
    like_by_name, structure = flatten_by_name(like)
    with _explain_read_errors(directory, entry):
        contents = kind.read_contents(path)
        if like is not None:
            leaves_by_name = {leaf.name: leaf for leaf in contents.leaves}
            if partly:
                leaves_by_name = {
                    name: leaf
                    for name, leaf in leaves_by_name.items()
                    if name.split("/")[0] in like
                }
            _check_structure(path, leaves_by_name, like_by_name)
        chosen = {x.name for x in contents.leaves if like is None or x.name in like_by_name}
        values = {
            leaf.name: decode_leaf(leaf, raw)
            if like is None
            else as_like(leaf, raw, like_by_name[leaf.name])
            for leaf, raw in kind.read_arrays(path, contents, chosen)
        }
    if like is None:
        return Restored(entry.step, values, contents.position)
    leaves = [values[name] for name in like_by_name]
    return Restored(entry.step, jax.tree.unflatten(structure, leaves), contents.position)


def latest_step(directory: files.StrPath) -> int | None:
    """Returns the last step that has a checkpoint, or None; raises as `list_checkpoints`."""
    checkpoint_entries = list_checkpoints(directory)
    return checkpoint_entries[-1].step if checkpoint_entries else None


def _check_structure(
    path: str, saved_leaves: dict[str, Leaf], expected_leaves: dict[str, object]
) -> None:
    """Raises an error if a checkpoint holds another tree than expected."""
    misfits = {
        name: describe_leaf_mismatch(saved_leaves[name], like)
        for name, like in expected_leaves.items()
        if name in saved_leaves
    }
    lines = {
        "not in it": [name for name in expected_leaves if name not in saved_leaves],
        "only in it": [name for name in saved_leaves if name not in expected_leaves],
        "other in it": [
            f"{name} ({saved_leaves[name]}, wanted {form})"
            for name, form in misfits.items()
            if form
        ],
    }
    wrong = [f"{heading}: {', '.join(names)}" for heading, names in lines.items() if names]
    if wrong:
        raise check.value_error(
            "\n    ".join([f"{path} holds another tree than `like`:", *wrong]),
            "give as `like` what was saved, or leave it out for a dict of all arrays by name",
        )


@contextlib.contextmanager
def _explain_save_errors(directory: files.StrPath, step: int) -> Generator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise check.value_error(
            f"{error.filename} is no directory, so that step {step} cannot be saved",
            "give a directory; it need not exist yet",
        ) from error
    except OSError as error:
        raise check.value_error(
            f"step {step} cannot be saved in {os.fspath(directory)}: {error.strerror}",
            "make room there or give another directory; the checkpoints in it are as they were",
        ) from error


@contextlib.contextmanager
def _explain_read_errors(directory: files.StrPath, entry: Entry) -> Generator[None]:
    try:
        yield
    except (ForeignError, OSError) as error:
        other_entries = [
            other_entry
            for other_entry in list_checkpoints(directory)
            if other_entry.step != entry.step
        ]
        wrong = error.strerror if isinstance(error, OSError) else error
        raise check.value_error(
            f"{os.path.join(directory, entry.name)} {wrong}",
            f"restore another step: {describe_steps(other_entries)}"
            if other_entries
            else "save it anew",
        ) from error
