"""What is told of tensors and nodes for debugging: names, places in scripts, and what one likes."""

from __future__ import annotations

import dataclasses as dc
import itertools
import json
import os
import weakref
from typing import Any

from ipujax.checks.guards import calling_frame
from ipujax.host import files
from ipujax.popart.checks import check

_ids = itertools.count(1)


@check.guard
@dc.dataclass(frozen=True)
class SourceLocation:
    """A line of a script."""

    functionName: str
    fileName: str
    lineNumber: int

    def __post_init__(self) -> None:
        check.text(self.functionName, "functionName")
        check.text(self.fileName, "fileName")
        check.integer(self.lineNumber, "lineNumber", at_least=0)


@check.guard
class DebugContext:
    """What a tensor, a node or a part of a script is called, and where it comes from.

    Called as `DebugContext(name="", loc=...)` or `DebugContext(debugInfo, name="", loc=...)`; the
    location is the caller's line. Wherever a `debugContext` is taken, a text stands for its name.

    Args:
      debugInfo: of what this is a part of; its name comes first.
      name: its own.
      loc: where it is from.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        given = list(args)
        parent = given.pop(0) if given and isinstance(given[0], DebugInfo) else None
        names = dict(zip(("name", "loc"), given, strict=False)) | kwargs
        parent = names.pop("debugInfo", parent)
        self.parent: DebugInfo | None = check.instance(
            parent, DebugInfo, "debugInfo", optional=True
        )
        self.name: str = check.text(names.pop("name", ""), "the name of a DebugContext")
        loc = names.pop("loc", None) or _caller()
        self.location: SourceLocation = check.instance(loc, SourceLocation, "loc")
        if names or len(given) > 2:
            raise check.refuse_type(f"DebugContext takes no {[*names, *given[2:]]}")

    @property
    def path(self) -> str:
        """The name, after those that it is a part of."""
        before = self.parent.context.path if self.parent else ""
        return "/".join(filter(None, [before, self.name]))


@check.guard
class DebugInfo:
    """Values that are told of something, in the file of `initializePoplarDebugInfo`.

    They are written once nothing uses this any more, or the file is closed.

    Args:
      debugContext: what it is; a text is its name.
      layer: who tells it.
    """

    def __init__(self, debugContext: DebugContext | str, layer: str):
        self.context = (
            DebugContext(debugContext, loc=_caller())
            if isinstance(debugContext, str)
            else check.instance(debugContext, DebugContext, "debugContext")
        )
        self._id = next(_ids)
        parent = self.context.parent
        self._values: dict[str, Any] = {
            "id": self._id,
            "name": self.context.name,
            "location": dc.asdict(self.context.location),
            "layer": check.text(layer, "the layer"),
            **({"parentId": parent.getId()} if parent else {}),
        }
        if _File.now is not None:
            _File.now.add(self, self._values)

    def setValue(self, name: str, value: Any) -> None:
        """Tells a value: a text, or a list of values."""
        self._values[check.text(name, "the name of a value")] = value

    def getId(self) -> int:
        """The number of this."""
        return self._id


Context = DebugContext | str
"""What a `debugContext` can be."""


class _File:
    """A file of debug information: contexts, and a table of texts that they name by number."""

    now: _File | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._contexts: list[dict[str, Any]] = []
        self._texts: dict[str, int] = {}
        self._pending: list[weakref.finalize[..., Any]] = []

    def add(self, info: DebugInfo, values: dict[str, Any]) -> None:
        ended = weakref.finalize(info, self._end, values)
        ended.atexit = False
        self._pending.append(ended)

    def write(self) -> None:
        for ended in self._pending:
            ended()
        content = {"contexts": self._contexts, "stringTable": list(self._texts)}
        with files.replacing(self._path) as file:
            file.write(json.dumps(content).encode())

    def _end(self, values: dict[str, Any]) -> None:
        location = values["location"]
        self._contexts.append(
            values
            | {
                "name": self._number(values["name"]),
                "location": {
                    "fileName": self._number(location["fileName"]),
                    "functionName": self._number(location["functionName"]),
                    "lineNumber": location["lineNumber"],
                },
            }
        )

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))


@check.guard
def initializePoplarDebugInfo(filename: str | os.PathLike[str], format: str = "json") -> None:
    """Begins a file of debug information.

    Raises:
      PopARTError: (a `ValueError`) another format than JSON.
    """
    check.one_of(format, ("json",), "the format of initializePoplarDebugInfo")
    _File.now = _File(os.fspath(check.path(filename, "the file of debug information")))


def closePoplarDebugInfo() -> None:
    """Writes the file of debug information, and ends it."""
    if _File.now is not None:
        _File.now.write()
        _File.now = None


def path_of(context: Context) -> str:
    """The name that a text or a context says.

    Raises:
      PopARTTypeError: (a `TypeError`) it is neither.
    """
    if isinstance(context, DebugContext):
        return context.path
    return check.text(context, "debugContext")


def _caller() -> SourceLocation:
    """The line that calls what calls this."""
    frame = calling_frame(2)
    if frame is None:
        return SourceLocation("", "", 0)
    return SourceLocation(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)
