"""Collects the source lines that a report names, so that its page can show them anywhere."""

from __future__ import annotations

import dataclasses as dc
import linecache
from collections.abc import Collection, Iterable, Sequence

from lowering import file_of_cell, is_in_installed_package, parse_source_line

MOST_LINES = 2_000
MOST_BYTES = 100_000
"""The most lines and bytes of all excerpts of a report together."""

_AROUND = (50, 10, 2, 0)  # lines around the named ones to show, where a file is too long


@dc.dataclass(frozen=True, slots=True)
class Excerpt:
    """Consecutive lines of a source file.

    Attributes:
      file: its name in call paths: a path, or a notebook's `cell 12`.
      line: the number of the first line.
      text: the lines.
    """

    file: str
    line: int
    text: str


def collect_excerpts(call_paths: Iterable[Collection[str]]) -> tuple[Excerpt, ...]:
    """Collects the files that call paths name, as whole as fits, short ones first.

    The files yet to come share equally in the remaining allowance. A longer file is cut to the
    surroundings of the named lines, or left out if those alone are too many. Files of installed
    packages, and those that cannot be read, are left out, too.
    """
    lines_of_file: dict[str, set[int]] = {}
    frames = {frame for path in call_paths for frame in path}
    for file, line in filter(None, map(parse_source_line, frames)):
        lines_of_file.setdefault(file, set()).add(line)
    texts = {
        file: _read_source_lines(file_of_cell(file))
        for file in lines_of_file
        if not is_in_installed_package(file)
    }
    whole_files = [Excerpt(file, 1, "".join(lines)) for file, lines in texts.items() if lines]
    excerpts: list[Excerpt] = []
    remaining_share = 1.0
    for i, whole_file in enumerate(
        sorted(whole_files, key=lambda excerpt: (_compute_used_share([excerpt]), excerpt.file))
    ):
        fitting_excerpts = _shorten_around_named_lines(
            whole_file,
            texts[whole_file.file],
            lines_of_file[whole_file.file],
            remaining_share / (len(whole_files) - i),
        )
        remaining_share -= _compute_used_share(fitting_excerpts)
        excerpts.extend(fitting_excerpts)
    return tuple(sorted(excerpts, key=lambda one: (one.file, one.line)))


def _read_source_lines(file: str) -> list[str]:
    linecache.checkcache(file)  # the file may have changed since it was read
    return linecache.getlines(file)


def _shorten_around_named_lines(
    whole_file: Excerpt, lines: Sequence[str], named_lines: Collection[int], allowed_share: float
) -> list[Excerpt]:
    """Returns a file, or as much around its named lines as a share allows; [] if nothing fits."""
    candidates = (
        [whole_file],
        *(_excerpts_around_lines(whole_file.file, lines, named_lines, reach) for reach in _AROUND),
    )
    return next(
        (candidate for candidate in candidates if _compute_used_share(candidate) <= allowed_share),
        [],
    )


def _excerpts_around_lines(
    file: str, lines: Sequence[str], named_lines: Collection[int], margin: int
) -> list[Excerpt]:
    line_numbers = {n for line in named_lines for n in range(line - margin, line + margin + 1)}
    line_numbers &= set(range(1, len(lines) + 1))
    starts = sorted(number for number in line_numbers if number - 1 not in line_numbers)
    ends = sorted(number for number in line_numbers if number + 1 not in line_numbers)
    return [
        Excerpt(file, start, "".join(lines[start - 1 : end]))
        for start, end in zip(starts, ends, strict=True)
    ]


def _compute_used_share(excerpts: Sequence[Excerpt]) -> float:
    """Returns how much of the allowance some excerpts take."""
    lines = sum(excerpt.text.count("\n") for excerpt in excerpts)
    size = sum(len(one.text.encode()) for one in excerpts)
    return max(lines / MOST_LINES, size / MOST_BYTES)
