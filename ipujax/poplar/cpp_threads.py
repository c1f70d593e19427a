"""A check of a codelet's text: may its vertices run on several threads?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

_STATIC = {"static", "thread_local"}
_PRINTS = {"printf", "fprintf", "puts", "fputs", "putchar", "cout", "cerr"}
_NO_VARIABLE = {"using", "typedef", "template", "static_assert", "namespace", "friend", ";"}
_TYPES = {"class", "struct", "union", "enum"}


def needs_one_thread(words: Sequence[str]) -> bool:
    """Returns whether vertices may share variables, or an order in which they print.

    What may be either, a variable or the declaration of a function, counts as a variable.

    Args:
      words: the words and signs of the text.
    """
    return (
        not _PRINTS.isdisjoint(words)
        or any(_is_variable(statement) for statement in _statements_of_namespaces(words))
        or any(_is_variable(words[i : _end(words, i)]) for i in _indices_of(words, _STATIC))
    )


def _indices_of(words: Sequence[str], keywords: set[str]) -> Iterator[int]:
    return (index for index, word in enumerate(words) if word in keywords)


def _end(words: Sequence[str], start: int) -> int:
    """Returns the index after a declaration: after its `;`, or the `{` of its body or its value."""
    return next(
        (index + 1 for index in range(start, len(words)) if words[index] in (";", "{")), len(words)
    )


def _statements_of_namespaces(words: Sequence[str]) -> Iterator[list[str]]:
    """Yields the declarations outside of classes and functions, without what is within braces."""
    statement: list[str] = []
    depth = 0
    for word in words:
        depth += (word == "{") - (word == "}")
        is_linkage = statement[:1] == ["extern"] and len(statement) == 2  # extern "C" {
        opens = word == "{" and depth == 1 and (is_linkage or "namespace" in statement[:2])
        if opens or depth < 0:  # a namespace begins or ends
            statement, depth = [], 0
            continue
        if depth == 0 or (word == "{" and depth == 1):
            statement.append(word)
        if depth == 0 and (word == ";" or (word == "}" and not _continues(statement))):
            yield statement
            statement = []


def _continues(statement: Sequence[str]) -> bool:
    """Returns whether a declaration goes on after braces: that of a class, or of a variable."""
    head = [*itertools.takewhile(lambda word: word not in ("{", "="), statement)]
    return bool(head) and (head[0] in _TYPES or "(" not in head)


def _is_variable(statement: Sequence[str]) -> bool:
    """Returns whether a declaration may be of a variable that changes."""
    words = _drop_attributes(statement)
    if words[0] in {*_NO_VARIABLE, "}"} or _never_changes(words):
        return False
    if words[0] in _TYPES:
        return len(words) > 3 and words[-2] != "}"
    head = [*itertools.takewhile(lambda word: word not in ("{", "=", ";"), words)]
    return len(head) > 1 and not ("(" in head and words[len(head) :][:1] == ["{"])


def _never_changes(words: Sequence[str]) -> bool:
    """Returns whether a declaration is of a constant; a pointer to one may point elsewhere."""
    return "constexpr" in words or ("const" in words and "*" not in words)


def _drop_attributes(statement: Sequence[str]) -> list[str]:
    """Returns a declaration without `__attribute__((...))` and `alignas(...)`."""
    words: list[str] = []
    depth, is_attribute = 0, False
    for word in statement:
        is_attribute |= word in ("__attribute__", "alignas")
        if not is_attribute:
            words.append(word)
        depth += is_attribute and ((word == "(") - (word == ")"))
        is_attribute &= depth > 0 or word in ("__attribute__", "alignas")
    return words or [";"]
