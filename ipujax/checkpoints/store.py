"""Writing a tree to a directory of checkpoints, and reading one from there."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import os
from collections.abc import Generator
from typing import Any

import jax

from ipujax.checkpoints import npz, with_orbax
from ipujax.checkpoints.checks import check
from ipujax.checkpoints.contents import Contents, ForeignError
from ipujax.checkpoints.folder import Entry, entries, listed, newest, next_entry, outdated
from ipujax.checkpoints.leaves import Leaf, as_like, misfit, named, read, written
from ipujax.checkpoints.position import Position
from ipujax.distribution.join import here
from ipujax.host import files


@check.guard
@dc.dataclass(frozen=True)
class Restored:
    """What a checkpoint held.

    Attributes:
      step: when it was made.
      tree: as `like`, or the arrays by their names.
      position: where the data set was, if it is to go on from there.
    """

    step: int
    tree: Any
    position: Position | None


def save(
    directory: files.StrPath,
    step: int,
    tree: Any,
    keep: int = 5,
    position: Position | None = None,
) -> str:
    """Writes a checkpoint, and takes away those that are not to be kept; gives its path.

    Args:
      directory: made if it is not there.
      step: 0 or more.
      tree: a pytree of arrays and numbers.
      keep: how many stay, this one and those of the latest steps; 0 for all.
      position: of the data set, for a training that is to go on with its next element.

    Raises:
      CheckpointError: what cannot be written; the checkpoints that were there are as they were.
      CheckpointTypeError: a leaf that is no array of numbers.
    """
    pairs = [written(name, value) for name, value in named(tree)[0].items()]
    contents = Contents(tuple(leaf for leaf, _ in pairs), position)
    # Orbax has all processes write one checkpoint together; here each writes its own.
    is_alone = here().count == 1
    kind = with_orbax if is_alone and with_orbax.is_installed() else npz
    with _saving(directory, step):
        os.makedirs(directory, exist_ok=True)
        made = next_entry(directory, step, is_file=kind is npz)
        path = os.path.join(directory, made.name)
        kind.write(path, contents, [array for _, array in pairs])
    for old in outdated(entries(directory), made, keep):
        try:
            files.remove(os.path.join(directory, old.name))
        except OSError as error:
            raise check.refuse(
                f"step {step} is saved, but the older {old.name} in {os.fspath(directory)} cannot "
                f"be taken away: {error.strerror}",
                "take it away, or keep more checkpoints",
            ) from error
    return path


def restore(
    directory: files.StrPath, like: Any = None, step: int | None = None, *, partly: bool = False
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
    entry = newest(directory, step)
    path = os.path.join(directory, entry.name)
    kind = npz if entry.is_file else with_orbax
    wanted, structure = named(like)
    with _reading(directory, entry):
        contents = kind.read_contents(path)
        if like is not None:
            known = {leaf.name: leaf for leaf in contents.leaves}
            if partly:
                known = {name: leaf for name, leaf in known.items() if name.split("/")[0] in like}
            _check_structure(path, known, wanted)
        chosen = {x.name: x for x in contents.leaves if like is None or x.name in wanted}
        arrays = kind.read_arrays(path, contents, chosen)
        found = {name: read(leaf, arrays[name]) for name, leaf in chosen.items()}
    if like is None:
        return Restored(entry.step, found, contents.position)
    leaves = [as_like(found[name], each) for name, each in wanted.items()]
    return Restored(entry.step, jax.tree.unflatten(structure, leaves), contents.position)


def latest_step(directory: files.StrPath) -> int | None:
    """The last step of which there is a checkpoint, if there are any; raises as `entries`."""
    known = entries(directory)
    return known[-1].step if known else None


def _check_structure(path: str, found: dict[str, Leaf], wanted: dict[str, Any]) -> None:
    """Refuses a checkpoint that holds something else than is wanted."""
    misfits = {name: misfit(found[name], like) for name, like in wanted.items() if name in found}
    lines = {
        "not in it": [name for name in wanted if name not in found],
        "only in it": [name for name in found if name not in wanted],
        "other in it": [
            f"{name} ({found[name]}, wanted {form})" for name, form in misfits.items() if form
        ],
    }
    wrong = [f"{what}: {', '.join(names)}" for what, names in lines.items() if names]
    if wrong:
        raise check.refuse(
            "\n    ".join([f"{path} holds another tree than `like`:", *wrong]),
            "give as `like` what was saved, or leave it out for a dict of all arrays by name",
        )


@contextlib.contextmanager
def _saving(directory: files.StrPath, step: int) -> Generator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise check.refuse(
            f"{error.filename} is no directory, so that step {step} cannot be saved",
            "give a directory; it need not exist yet",
        ) from error
    except OSError as error:
        raise check.refuse(
            f"step {step} cannot be saved in {os.fspath(directory)}: {error.strerror}",
            "make room there or give another directory; the checkpoints in it are as they were",
        ) from error


@contextlib.contextmanager
def _reading(directory: files.StrPath, entry: Entry) -> Generator[None]:
    try:
        yield
    except (ForeignError, OSError) as error:
        others = [each for each in entries(directory) if each.step != entry.step]
        wrong = error.strerror if isinstance(error, OSError) else error
        raise check.refuse(
            f"{os.path.join(directory, entry.name)} {wrong}",
            f"restore another step: {listed(others)}" if others else "save it anew",
        ) from error
