"""The debug information of tensors and nodes: names, source locations and the user's values."""

from __future__ import annotations

import dataclasses as dc
import itertools
import json
import os
import weakref
from typing import Any

from ipujax.ground import calling_frame, files
from ipujax.popart.popart_checks import check

_ids = itertools.count(1)


@check.guard
@dc.dataclass(frozen=True)
class SourceLocation:
    """The function, file and line number of a line of a script."""

    functionName: str
    fileName: str
    lineNumber: int

    def __post_init__(self) -> None:
        check.require_text(self.functionName, "functionName")
        check.require_text(self.fileName, "fileName")
        check.require_integer(self.lineNumber, "lineNumber", at_least=0)


@check.guard
class DebugContext:
    """The name and the source location of a tensor, a node or a part of a script.

    Called as `DebugContext(name="", loc=...)` or `DebugContext(debugInfo, name="", loc=...)`; the
    location is the caller's line. Wherever a `debugContext` is taken, a text stands for its name.

    Args:
      debugInfo: the information of what this is a part of; its name becomes a prefix.
      name: the name.
      loc: the source location; the caller's line by default.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        positional = list(args)
        parent = positional.pop(0) if positional and isinstance(positional[0], DebugInfo) else None
        names = dict(zip(("name", "loc"), positional, strict=False)) | kwargs
        parent = names.pop("debugInfo", parent)
        self.parent: DebugInfo | None = check.require_instance(
            parent, DebugInfo, "debugInfo", optional=True
        )
        self.name: str = check.require_text(names.pop("name", ""), "the name of a DebugContext")
        loc = names.pop("loc", None) or _calling_location()
        self.location: SourceLocation = check.require_instance(loc, SourceLocation, "loc")
        if names or len(positional) > 2:
            raise check.type_error(f"DebugContext takes no {[*names, *positional[2:]]}")

    @property
    def path(self) -> str:
        """The name, with the names of the contexts around it in front."""
        prefix = self.parent.context.path if self.parent else ""
        return "/".join(filter(None, [prefix, self.name]))


@check.guard
class DebugInfo:
    """A set of values about an object, for the file of `initializePoplarDebugInfo`.

    The values are written when this object is freed, or the file is closed.

    Args:
      debugContext: the context of the object, or its name.
      layer: the software layer that adds the values.
    """

    def __init__(self, debugContext: DebugContext | str, layer: str):
        self.context = (
            DebugContext(debugContext, loc=_calling_location())
            if isinstance(debugContext, str)
            else check.require_instance(debugContext, DebugContext, "debugContext")
        )
        self._id = next(_ids)
        parent = self.context.parent
        self._values: dict[str, object] = {
            "id": self._id,
            "name": self.context.name,
            "location": dc.asdict(self.context.location),
            "layer": check.require_text(layer, "the layer"),
            **({"parentId": parent.getId()} if parent else {}),
        }
        if _DebugInfoFile.current is not None:
            _DebugInfoFile.current.add_info(self, self._values)

    def setValue(self, name: str, value: object) -> None:
        """Sets a value: a text, or a list of values."""
        self._values[check.require_text(name, "the name of a value")] = value

    def getId(self) -> int:
        """Returns the id of this debug information."""
        return self._id


Context = DebugContext | str
"""The types that a `debugContext` can have."""


class _DebugInfoFile:
    """A file of debug information: contexts, and a table of texts that they name by number."""

    current: _DebugInfoFile | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._contexts: list[dict[str, Any]] = []
        self._texts: dict[str, int] = {}
        self._pending: list[weakref.finalize[..., Any]] = []

    def add_info(self, info: DebugInfo, values: dict[str, object]) -> None:
        finalizer = weakref.finalize(info, self._append_context, values)
        finalizer.atexit = False
        self._pending.append(finalizer)

    def write_debug_contexts(self) -> None:
        for finalizer in self._pending:
            finalizer()
        content = {"contexts": self._contexts, "stringTable": list(self._texts)}
        with files.replace_file(self._path) as file:
            file.write(json.dumps(content).encode())

    def _append_context(self, values: dict[str, Any]) -> None:
        location = values["location"]
        self._contexts.append(
            values
            | {
                "name": self._text_index(values["name"]),
                "location": {
                    "fileName": self._text_index(location["fileName"]),
                    "functionName": self._text_index(location["functionName"]),
                    "lineNumber": location["lineNumber"],
                },
            }
        )

    def _text_index(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))


@check.guard
def initializePoplarDebugInfo(filename: str | os.PathLike[str], format: str = "json") -> None:
    """Opens a file of debug information.

    Raises:
      PopARTError: (a `ValueError`) another format than JSON.
    """
    check.require_one_of(format, ("json",), "the format of initializePoplarDebugInfo")
    _DebugInfoFile.current = _DebugInfoFile(
        os.fspath(check.require_path(filename, "the file of debug information"))
    )


def closePoplarDebugInfo() -> None:
    """Writes the file of debug information, and closes it."""
    if _DebugInfoFile.current is not None:
        _DebugInfoFile.current.write_debug_contexts()
        _DebugInfoFile.current = None


def context_path(context: Context) -> str:
    """Returns the path of a debug context, or a text as it is.

    Raises:
      PopARTTypeError: (a `TypeError`) `context` is neither.
    """
    if isinstance(context, DebugContext):
        return context.path
    return check.require_text(context, "debugContext")


def _calling_location() -> SourceLocation:
    """Returns the source location of the user's call."""
    frame = calling_frame(2)
    if frame is None:
        return SourceLocation("", "", 0)
    return SourceLocation(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)
