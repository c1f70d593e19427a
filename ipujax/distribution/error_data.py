"""Errors as data, for other processes: nothing that is read runs code, or imports any.

An error is the name of its class, its arguments and its attributes: texts, numbers, arrays, and
tuples, lists and dicts of them. A class is one of Python's own, or one that the reading process has
imported already; its constructor is not called.
"""

from __future__ import annotations

import base64
import builtins
import json
import sys
from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np

from ipujax.errors import DistributionError

Json = Any

MOST_BYTES = 2**28
"""Of an error, with the loop variables that it may hold."""


class NoDataError(Exception):
    """Something that cannot be written as data, or data that says nothing that is known here."""


def encode_error(error: BaseException, here: int) -> bytes:
    """An error as bytes; one of a class that others cannot know becomes a `DistributionError`.

    Args:
      error: what ended the run of this process.
      here: the number of this process.
    """
    if isinstance(error, Exception):
        try:
            data = json.dumps(_encode_exception(error)).encode()
            decode_error(data)
        except Exception:  # whatever the user's class does when it is looked at
            pass
        else:
            if len(data) < MOST_BYTES:
                return data
    text = f"instance {here} ended its run by {type(error).__name__}: {error}"
    return json.dumps(_encode_exception(DistributionError(text))).encode()


def decode_error(data: bytes) -> Exception:
    """The error of another process, for this one.

    Raises:
      NoDataError: the bytes hold none.
    """
    try:
        found = json.loads(data)
        kind = _class_of(found["class"], Exception)
        arguments = [_decode(each) for each in found["arguments"]]
        state = {str(name): _decode(value) for name, value in found["state"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NoDataError(f"no error: {error}") from error
    return _build_exception(kind, arguments, state)


def _encode_exception(error: Exception) -> Json:
    _, given, *more = cast(Sequence[Any], error.__reduce__())
    whole = more[0] if more else vars(error)
    is_builtin = type(error).__module__ == builtins.__name__
    # Python's own say more by it: an `OSError` its file.
    arguments = given if is_builtin else error.args
    state: dict[str, Json] = {}
    for name, value in cast(dict[str, Any], whole or {}).items():
        try:
            state[name] = _encode(value)
        except NoDataError:
            state[name] = None
    return {
        "class": _name_of(type(error)),
        "arguments": [_encode_argument(each) for each in arguments],
        "state": state,
    }


def _encode_argument(value: Any) -> Json:
    try:
        return _encode(value)
    except NoDataError:
        return str(value)


def _build_exception(
    kind: type[Exception], arguments: Sequence[Any], state: dict[str, Any]
) -> Exception:
    if kind.__module__ == builtins.__name__:
        try:
            error = kind(*arguments)
        except TypeError as wrong:
            raise NoDataError(f"arguments of {kind.__name__}: {wrong}") from wrong
    else:
        base: Any = next(each for each in kind.__mro__ if each.__module__ == builtins.__name__)
        error: Exception = base.__new__(kind)
        error.args = tuple(arguments)
    error.__dict__.update(state)
    return error


# --- values ---------------------------------------------------------------------------------------


def _encode(value: Any) -> Json:
    """A value as JSON: plain ones as they are, others as an object with the name of their kind."""
    if value is None or isinstance(value, str) or type(value) in (bool, int, float):
        return value
    if isinstance(value, bytes):
        return {"bytes": _text_of(value)}
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return _encode_array(value)
    if isinstance(value, tuple):
        members = [_encode(each) for each in cast(tuple[Any, ...], value)]
        named = hasattr(type(cast(Any, value)), "_fields")
        return {"tuple": members} | ({"class": _name_of(type(value))} if named else {})
    if type(value) is list:
        return {"list": [_encode(each) for each in cast(list[Any], value)]}
    if type(value) is dict:
        pairs = cast(dict[Any, Any], value).items()
        return {"dict": [[_encode(name), _encode(each)] for name, each in pairs]}
    raise NoDataError(f"a {type(value).__name__} is no data")


def _decode(data: Json) -> Any:
    match data:
        case {"bytes": text}:
            return base64.b64decode(text, validate=True)
        case {"array": text, "dtype": name, "shape": shape}:
            buffer = base64.b64decode(text, validate=True)
            return np.frombuffer(buffer, np.dtype(name)).reshape(shape).copy()
        case {"tuple": members, "class": name}:
            return tuple.__new__(_class_of(name, tuple), map(_decode, members))
        case {"tuple": members}:
            return tuple(map(_decode, members))
        case {"list": members}:
            return list(map(_decode, members))
        case {"dict": pairs}:
            return {_decode(name): _decode(each) for name, each in pairs}
        case None | str() | bool() | int() | float():
            return data
        case _:
            raise NoDataError(f"{data!r:.60} is no value")


def _encode_array(value: Any) -> Json:
    try:
        array = np.asarray(value)
    except Exception as wrong:  # one that was donated, or a typed key
        raise NoDataError(f"an array without numbers: {wrong}") from wrong
    if array.dtype.hasobject:
        raise NoDataError("an array of objects is no data")
    return {
        "array": _text_of(array.tobytes()),
        "dtype": array.dtype.name,
        "shape": list(array.shape),
    }


def _text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _name_of(kind: type) -> list[str]:
    return [kind.__module__, *kind.__qualname__.split(".")]


def _class_of(name: Sequence[str], base: type) -> Any:
    """A class by its module and names in it, where that is imported; nothing is.

    Raises:
      NoDataError: there is none of these names, or one that is not derived from `base`.
    """
    module, *parts = name
    found: Any = sys.modules.get(module)
    for part in parts:
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if not isinstance(found, type) or not issubclass(found, base):
        raise NoDataError(f"{'.'.join(name)} is no class of {base.__name__} that is known here")
    return found
