"""The text of the user's lines that a report names, so that its page can show them anywhere."""

from __future__ import annotations

import dataclasses as dc
import linecache
from collections.abc import Collection, Iterable, Sequence

from lowering import file_behind, is_installed, place_in

MOST_LINES = 2_000
MOST_BYTES = 100_000
"""Of a report's excerpts together."""

_AROUND = (50, 10, 2, 0)  # lines before and after those that are named, where a file is too long


@dc.dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a file that follow each other.

    Attributes:
      file: as call paths name it: a path, or a notebook's `cell 12`.
      line: the number of the first of them.
      text: them.
    """

    file: str
    line: int
    text: str


def excerpts(call_paths: Iterable[Collection[str]]) -> tuple[Excerpt, ...]:
    """The files that call paths name, as whole as fits: the short ones first.

    Each file may take its part of what those before it have left. One that is longer is cut to what
    is around the lines that are named, or left out if those alone are too many. Files of installed
    packages, and those that are not there to be read, are left out, too.
    """
    named: dict[str, set[int]] = {}
    frames = {frame for path in call_paths for frame in path}
    for file, line in filter(None, map(place_in, frames)):
        named.setdefault(file, set()).add(line)
    texts = {file: _lines(file_behind(file)) for file in named if not is_installed(file)}
    whole = [Excerpt(file, 1, "".join(lines)) for file, lines in texts.items() if lines]
    found: list[Excerpt] = []
    left = 1.0
    for i, every in enumerate(sorted(whole, key=lambda one: (_share([one]), one.file))):
        part = _fitting(every, texts[every.file], named[every.file], left / (len(whole) - i))
        left -= _share(part)
        found.extend(part)
    return tuple(sorted(found, key=lambda one: (one.file, one.line)))


def _lines(file: str) -> list[str]:
    linecache.checkcache(file)  # it may have been read before it was changed and loaded again
    return linecache.getlines(file)


def _fitting(
    whole: Excerpt, lines: Sequence[str], named: Collection[int], share: float
) -> list[Excerpt]:
    """A file, or as much around its lines as a share of what is allowed; [] if nothing is."""
    choices = ([whole], *(_around(whole.file, lines, named, reach) for reach in _AROUND))
    return next((choice for choice in choices if _share(choice) <= share), [])


def _around(file: str, lines: Sequence[str], named: Collection[int], reach: int) -> list[Excerpt]:
    kept = {n for line in named for n in range(line - reach, line + reach + 1)}
    kept &= set(range(1, len(lines) + 1))
    starts = sorted(number for number in kept if number - 1 not in kept)
    ends = sorted(number for number in kept if number + 1 not in kept)
    return [
        Excerpt(file, start, "".join(lines[start - 1 : end]))
        for start, end in zip(starts, ends, strict=True)
    ]


def _share(found: Sequence[Excerpt]) -> float:
    """Of what is allowed, how much these take."""
    lines = sum(one.text.count("\n") for one in found)
    size = sum(len(one.text.encode()) for one in found)
    return max(lines / MOST_LINES, size / MOST_BYTES)
