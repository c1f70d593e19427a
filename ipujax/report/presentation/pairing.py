"""Pairs what two reports list, such as their operations, so that all comparisons show equal pairs.

Items belong together by scope, source line, direction and kind. Extents and number types do not
matter, so that a larger batch or narrower numbers leave every operation its partner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from ipujax.report.presentation.text_page import shorten_source_line
from lowering import parse_source_line

_MORE = re.compile(r" and \d+ more$")
_NUMBER = re.compile(r"\d")
_EXTENTS = re.compile(r"[\s_]+\d.*")


class Item(NamedTuple):
    """An entry of a report, as far as pairing looks at it.

    Attributes:
      label: its name for people, as `matmul 64 x 1024` or `multiply, add`; the words before
        numbers are its kind.
      origin: the user's `file:line`, or "".
      line_text: the text of that line; "" if it is unknown.
      scope: the named scopes around it, as `blocks/attention`, or "".
      direction: its pass, as "backward".
      order: its position in the program.
    """

    label: str
    origin: str = ""
    line_text: str = ""
    scope: str = ""
    direction: str = ""
    order: int = 0

    @property
    def place(self) -> str:
        """The file and line, without the function and without the path to an installed package."""
        parsed = parse_source_line(self.origin)
        file, line = parsed or (self.origin, "")
        return f"{shorten_source_line(file)}:{line}"


class Pair(NamedTuple):
    """Items of two reports that belong together.

    Attributes:
      title: their label, or both labels where they differ, as `matmul 64→128 x 10`.
      members: the indices of the first report's items and of the second's; () where a report has
        none.
    """

    title: str
    members: tuple[tuple[int, ...], tuple[int, ...]]


class _Entry(NamedTuple):
    side: int  # 0 or 1: of the first or the second report
    position: int
    item: Item


_LineName = Callable[[Item], Hashable]

_LINE_NAMES: tuple[_LineName, ...] = (
    lambda item: (item.place, item.line_text),
    lambda item: item.line_text or item.place,  # a line that moved, as others were written above it
    lambda item: item.place,  # a line that was edited
)
"""What makes two lines one, the strictest first."""


def pair_items(
    first: Sequence[Item], second: Sequence[Item], *, across_lines: bool = False
) -> list[Pair]:
    """Pairs the items of two reports by scope, line, direction and kind.

    A line that moved is found by its text. Where a line has several items of one kind, they pair
    in the program's order; or all together, where one report has more of them, as of a fused chain
    that the other report runs in parts.

    Args:
      first: the items of one report.
      second: those of the other.
      across_lines: whether items without a partner may pair with those of other lines.

    Returns:
      Pairs in which each item is a member once; those without a partner come last.
    """
    unpaired = [
        _Entry(side, position, item)
        for side, items in enumerate((first, second))
        for position, item in enumerate(items)
    ]
    unpaired.sort(key=lambda entry: entry.item.order)
    pairs: list[Pair] = []
    any_line: _LineName = lambda _: None  # noqa: E731
    for name_line in (*_LINE_NAMES, *[any_line][: int(across_lines)]):
        pairs_of_line, unpaired = _pair_by_line(unpaired, name_line)
        pairs += pairs_of_line
    single_groups = _group_entries(
        unpaired, lambda e: (e.side, e.item.scope, e.item.direction, e.item.place, e.item.label)
    )
    return [*pairs, *map(_make_pair, single_groups)]


def _pair_by_line(
    entries: Sequence[_Entry], name_line: _LineName
) -> tuple[list[Pair], list[_Entry]]:
    """Pairs entries of equal line names; returns the pairs and the entries without a partner."""
    pairs: list[Pair] = []
    unpaired: list[_Entry] = []
    for group in _group_entries(
        entries, lambda e: (e.item.scope, e.item.direction, name_line(e.item))
    ):
        for related_entries in _split_by_kind(group):
            if len({entry.side for entry in related_entries}) == 2:
                pairs += _pair_in_order(related_entries)
            else:
                unpaired += related_entries
    return pairs, sorted(unpaired, key=lambda entry: entry.item.order)


def _group_entries(
    entries: Iterable[_Entry], key: Callable[[_Entry], Hashable]
) -> list[list[_Entry]]:
    groups: dict[Hashable, list[_Entry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return list(groups.values())


def _split_by_kind(entries: Iterable[_Entry]) -> list[list[_Entry]]:
    """Splits entries into those that share a word of their kinds, directly or through others."""
    kinds: list[tuple[frozenset[str], list[_Entry]]] = []
    for entry in entries:
        words, members = _words_of_kind(entry.item), [entry]
        for kind in [kind for kind in kinds if kind[0] & words]:
            kinds.remove(kind)
            words, members = words | kind[0], [*kind[1], *members]
        kinds.append((words, members))
    return [sorted(members, key=lambda entry: entry.item.order) for _, members in kinds]


def _words_of_kind(item: Item) -> frozenset[str]:
    """Returns the words of a label without numbers: those of a fused chain if the line is known."""
    words = _split_label(item.label)
    return frozenset(words if item.origin else [", ".join(words)])


def _split_label(label: str) -> list[str]:
    """Returns `["multiply", "add"]` for `multiply, add and 2 more`, `["conv"]` for `conv 3x3`."""
    return [_EXTENTS.sub("", part) for part in _MORE.sub("", label).split(", ")]


def _pair_in_order(entries: Sequence[_Entry]) -> list[Pair]:
    """Pairs the nth label of each report, or all together where one has more labels.

    Where both have the same labels, as in another order, each pairs with itself.
    """
    ranks: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for side, _, item in entries:
        ranks[side].setdefault(item.label, len(ranks[side]))
    if ranks[0].keys() == ranks[1].keys():
        ranks = (ranks[0], ranks[0])
    if len(ranks[0]) != len(ranks[1]):
        return [_make_pair(entries)]
    groups = _group_entries(entries, lambda entry: ranks[entry.side][entry.item.label])
    return list(map(_make_pair, groups))


def _make_pair(entries: Sequence[_Entry]) -> Pair:
    first, second = (
        tuple(entry.position for entry in entries if entry.side == side) for side in (0, 1)
    )
    titles = [
        _combine_labels(entry.item.label for entry in entries if entry.side == side)
        for side in (0, 1)
    ]
    return Pair(_combine_titles(*titles), (first, second))


def _combine_labels(labels: Iterable[str]) -> str:
    """Returns the label of items, or the words that their labels consist of, without numbers."""
    distinct = list(dict.fromkeys(labels))
    if len(distinct) == 1:
        return distinct[0]
    return ", ".join(dict.fromkeys(word for label in distinct for word in _split_label(label)))


def _combine_titles(before: str, after: str) -> str:
    """Returns `matmul 64→128 x 10` where only numbers differ, else one title after the other."""
    if not before or not after or before == after:
        return before or after
    words_before, words_after = before.split(" "), after.split(" ")
    if len(words_before) == len(words_after):
        differences = [
            pair for pair in zip(words_before, words_after, strict=True) if len({*pair}) > 1
        ]
        if all(_NUMBER.search(word) for pair in differences for word in pair):
            words = zip(words_before, words_after, strict=True)
            return " ".join(a if a == b else f"{a}→{b}" for a, b in words)
    return f"{before} → {after}"
