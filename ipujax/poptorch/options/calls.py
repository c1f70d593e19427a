"""Calls of options as text, run without Python's `exec`: `Training.gradientAccumulation(4)`."""

from __future__ import annotations

import ast
import enum
import inspect
from typing import Any

from ipujax.poptorch import enums
from ipujax.poptorch.checks import check

_NOT_FROM_FILES = ("loadFromFile", "from_json", "clone")


def run_call(options: Any, text: str, place: str) -> None:
    """Calls the method of options that a line names, with numbers, texts, lists and enums.

    Args:
      options: a `poptorch.Options`.
      text: the line.
      place: of it, for messages.

    Raises:
      Error: the line is no such call.
    """
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        node = None
    if not isinstance(node, ast.Call):
        raise _refused(text, place)
    names = _names(node.func, text, place)
    if names[0] == "options":
        names = names[1:]
    method: Any = find_method(options, names) if names else None
    if method is None:
        raise _refused(text, place)
    positional = [_value(each, text, place) for each in node.args]
    named = {str(each.arg): _value(each.value, text, place) for each in node.keywords}
    method(*positional, **named)


def find_method(options: Any, names: list[str]) -> Any:
    """The public method of options, or of a group of them, that has this name, or None."""
    found = options
    for number, name in enumerate(names):
        is_hidden = name.startswith("_") and name != "_Popart"  # which scripts use
        if is_hidden or name in _NOT_FROM_FILES:
            return None
        declared = inspect.getattr_static(type(found), name, None)
        is_last = number == len(names) - 1
        if not (inspect.isfunction(declared) if is_last else isinstance(declared, property)):
            return None
        found = getattr(found, name)
    return found


def _names(node: ast.expr, text: str, place: str) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_names(node.value, text, place), node.attr]
    raise _refused(text, place)


def _value(node: ast.expr, text: str, place: str) -> Any:
    """A literal, or a member of one of PopTorch's enums."""
    if isinstance(node, ast.Attribute):
        names = _names(node, text, place)
        kind = vars(enums).get(names[-2])
        is_known = isinstance(kind, type) and issubclass(kind, enum.Enum) and len(names) <= 3
        if is_known and names[:-2] in ([], ["poptorch"]) and names[-1] in kind.__members__:  # pyright: ignore
            return kind.__members__[names[-1]]  # pyright: ignore
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(each, text, place) for each in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_value(each, text, place) for each in node.keys if each is not None]
        return dict(zip(keys, (_value(each, text, place) for each in node.values), strict=True))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise _refused(text, place) from None


def _refused(text: str, place: str) -> Exception:
    return check.refuse(
        f"{place} is no call of an option with literals or enums: {text!r:.200}",
        "write it as Training.gradientAccumulation(4); or, if you trust the file, leave "
        "literals_only away",
    )
