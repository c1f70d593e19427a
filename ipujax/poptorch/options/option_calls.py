"""Calls of options as text, run without Python's `exec`: `Training.gradientAccumulation(4)`."""

from __future__ import annotations

import ast
import enum
import inspect
from typing import Any

from ipujax.poptorch import enums
from ipujax.poptorch.poptorch_checks import check

_NOT_FROM_FILES = ("loadFromFile", "from_json", "clone")


def run_option_call(options: object, text: str, source_line: str) -> None:
    """Runs one line of an options file: a call with numbers, texts, lists, dicts or enums.

    Args:
      options: a `poptorch.Options`.
      text: the line.
      source_line: file and line number of the text, for error messages.

    Raises:
      Error: the line is no such call.
    """
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        node = None
    if not isinstance(node, ast.Call):
        raise _refuse_line(text, source_line)
    names = _split_dotted_name(node.func, text, source_line)
    if names[0] == "options":
        names = names[1:]
    method: Any = find_option_method(options, names) if names else None
    if method is None:
        raise _refuse_line(text, source_line)
    positional = [_read_literal(argument, text, source_line) for argument in node.args]
    named = {str(each.arg): _read_literal(each.value, text, source_line) for each in node.keywords}
    method(*positional, **named)


def find_option_method(options: object, names: list[str]) -> Any:
    """Finds the public method of options, or of a group of them, by its dotted name, or None."""
    owner = options
    for number, name in enumerate(names):
        is_hidden = name.startswith("_") and name != "_Popart"  # which scripts use
        if is_hidden or name in _NOT_FROM_FILES:
            return None
        attribute = inspect.getattr_static(type(owner), name, None)
        is_last = number == len(names) - 1
        if not (inspect.isfunction(attribute) if is_last else isinstance(attribute, property)):
            return None
        owner = getattr(owner, name)
    return owner


def _split_dotted_name(node: ast.expr, text: str, source_line: str) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_split_dotted_name(node.value, text, source_line), node.attr]
    raise _refuse_line(text, source_line)


def _read_literal(node: ast.expr, text: str, source_line: str) -> object:
    """Reads a literal, or a member of one of PopTorch's enums, from a syntax node."""
    if isinstance(node, ast.Attribute):
        names = _split_dotted_name(node, text, source_line)
        kind = vars(enums).get(names[-2])
        is_known = isinstance(kind, type) and issubclass(kind, enum.Enum) and len(names) <= 3
        if is_known and names[:-2] in ([], ["poptorch"]) and names[-1] in kind.__members__:  # pyright: ignore
            return kind.__members__[names[-1]]  # pyright: ignore
    if isinstance(node, ast.List | ast.Tuple):
        values = [_read_literal(element, text, source_line) for element in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_read_literal(each, text, source_line) for each in node.keys if each is not None]
        return dict(
            zip(keys, (_read_literal(each, text, source_line) for each in node.values), strict=True)
        )
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise _refuse_line(text, source_line) from None


def _refuse_line(text: str, source_line: str) -> Exception:
    return check.value_error(
        f"{source_line} is no call of an option with literals or enums: {text!r:.200}",
        "write it as Training.gradientAccumulation(4); or, if you trust the file, leave "
        "literals_only away",
    )
