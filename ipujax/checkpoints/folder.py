"""Lists the checkpoints of a directory, finds the newest, and selects those to remove.

`ckpt-100.npz` is a checkpoint of step 100, and so is the folder `ckpt-100`. A checkpoint for a
step that has one already gets a number, `ckpt-100.1`, and the old one is removed later, so there
is always one.
"""

from __future__ import annotations

import dataclasses as dc
import os
import re

from ipujax.checkpoints.checkpoint_checks import check
from ipujax.ground import files

_NAME = re.compile(r"ckpt-(0|[1-9]\d*)(?:\.([1-9]\d*))?(\.npz)?")


@dc.dataclass(frozen=True, order=True)
class Entry:
    """A checkpoint in a directory.

    Attributes:
      step: when it was made.
      number: how many have been made for that step before it.
      is_file: whether it is an `.npz`, and no folder.
    """

    step: int
    number: int
    is_file: bool

    @property
    def name(self) -> str:
        """The name of the file or folder."""
        number = f".{self.number}" if self.number else ""
        return f"ckpt-{self.step}{number}{'.npz' if self.is_file else ''}"


def list_checkpoints(directory: files.StrPath) -> list[Entry]:
    """Lists all checkpoints of a directory, oldest step first; none if it does not exist.

    Raises:
      CheckpointError: no directory, or one that cannot be read.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise check.value_error(
            f"{os.fspath(directory)} is no directory", "give a directory; it need not exist yet"
        ) from None
    except OSError as error:
        raise check.value_error(
            f"{os.fspath(directory)} cannot be read: {error.strerror}"
        ) from error
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted(Entry(int(m[1]), int(m[2] or 0), m[3] is not None) for m in matches if m)


def find_checkpoint(directory: files.StrPath, step: int | None) -> Entry:
    """Finds the checkpoint of a step, or the newest one.

    Raises:
      CheckpointError: there is none.
    """
    all_entries = list_checkpoints(directory)
    matching_entries = [entry for entry in all_entries if step is None or entry.step == step]
    if matching_entries:
        return matching_entries[-1]
    if not all_entries:
        raise check.value_error(
            f"{os.fspath(directory)} holds no checkpoint",
            "save one there first, or give the directory in which they are",
        )
    raise check.value_error(
        f"{os.fspath(directory)} holds no checkpoint of step {step}",
        f"give one of the steps that it has: {describe_steps(all_entries)}",
    )


def describe_steps(checkpoint_entries: list[Entry]) -> str:
    """Returns the steps of checkpoints as a text, for messages."""
    return ", ".join(map(str, sorted({entry.step for entry in checkpoint_entries})))


def next_entry(directory: files.StrPath, step: int, *, is_file: bool) -> Entry:
    """Returns the entry of a new checkpoint of a step."""
    numbers = [entry.number for entry in list_checkpoints(directory) if entry.step == step]
    return Entry(step, max(numbers, default=-1) + 1, is_file)


def select_outdated(all_entries: list[Entry], new_entry: Entry, keep: int) -> list[Entry]:
    """Selects the checkpoints to remove after a new one was made; `keep=0` keeps all steps.

    The new one stays, even if there are later steps, and of each step the last one.
    """
    last = {entry.step: entry for entry in all_entries} | {new_entry.step: new_entry}
    other_steps = sorted(last.keys() - {new_entry.step})
    if keep:
        other_steps = other_steps[max(len(other_steps) - (keep - 1), 0) :]
    stay = {new_entry, *(last[step] for step in other_steps)}
    return [entry for entry in all_entries if entry not in stay]
