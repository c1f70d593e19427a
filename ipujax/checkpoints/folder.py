"""A directory of checkpoints: their names in it, which is the newest, which ones go.

`ckpt-100.npz` is one of step 100, `ckpt-100` too, in the form of a folder. One that is made for a
step that has one already has a number more, `ckpt-100.1`, and the old one goes afterwards: so there
is no moment without any.
"""

from __future__ import annotations

import dataclasses as dc
import os
import re

from ipujax.checkpoints.checks import check
from ipujax.host import files

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
        """Of the file or folder."""
        number = f".{self.number}" if self.number else ""
        return f"ckpt-{self.step}{number}{'.npz' if self.is_file else ''}"


def entries(directory: files.StrPath) -> list[Entry]:
    """All checkpoints of a directory, the oldest step first; none if it is not there.

    Raises:
      CheckpointError: no directory, or one that cannot be read.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise check.refuse(
            f"{os.fspath(directory)} is no directory", "give a directory; it need not exist yet"
        ) from None
    except OSError as error:
        raise check.refuse(f"{os.fspath(directory)} cannot be read: {error.strerror}") from error
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(Entry(int(m[1]), int(m[2] or 0), m[3] is not None) for m in found if m)


def newest(directory: files.StrPath, step: int | None) -> Entry:
    """The checkpoint of a step, or of the last one.

    Raises:
      CheckpointError: there is none.
    """
    known = entries(directory)
    found = [entry for entry in known if step is None or entry.step == step]
    if found:
        return found[-1]
    if not known:
        raise check.refuse(
            f"{os.fspath(directory)} holds no checkpoint",
            "save one there first, or give the directory in which they are",
        )
    raise check.refuse(
        f"{os.fspath(directory)} holds no checkpoint of step {step}",
        f"give one of the steps that it has: {listed(known)}",
    )


def listed(known: list[Entry]) -> str:
    """Their steps, for messages."""
    return ", ".join(map(str, sorted({entry.step for entry in known})))


def next_entry(directory: files.StrPath, step: int, *, is_file: bool) -> Entry:
    """What a new checkpoint of a step is to be called."""
    numbers = [entry.number for entry in entries(directory) if entry.step == step]
    return Entry(step, max(numbers, default=-1) + 1, is_file)


def outdated(known: list[Entry], made: Entry, keep: int) -> list[Entry]:
    """Which checkpoints go now that one was made; 0 keeps those of all steps.

    What was made stays, even where there are later steps, and of each step the last one.
    """
    last = {entry.step: entry for entry in known} | {made.step: made}
    others = sorted(last.keys() - {made.step})
    if keep:
        others = others[max(len(others) - (keep - 1), 0) :]
    stay = {made, *(last[step] for step in others)}
    return [entry for entry in known if entry not in stay]
