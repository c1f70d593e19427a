"""Encodes errors as data for other processes: decoding runs no code of others.

An error is the name of its class, its arguments and its attributes: texts, numbers, arrays, and
tuples, lists and dicts of them. A class is one of Python's own, or one that the reading process has
imported already; its constructor is not called.
"""

from __future__ import annotations

import base64
import builtins
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np

from ipujax.ground import DistributionError, Json

MOST_BYTES = 2**28
"""The most bytes of an encoded error, with the loop variables that it may hold."""
_PUBLIC_ERRORS = DistributionError.__module__
"""The module that the classes of ipujax's errors name, which may not be imported yet."""


class NoDataError(Exception):
    """A value that cannot be encoded as data, or data that cannot be decoded here."""


def encode_error(error: BaseException, process: int) -> bytes:
    """Encodes an error as bytes; one of an unknown class becomes a `DistributionError`.

    Args:
      error: the error that ended the run of this process.
      process: the number of this process.
    """
    if isinstance(error, Exception):
        try:
            data = json.dumps(_encode_exception(error)).encode()
            decode_error(data)
        except Exception:  # whatever the user's class raises when it is encoded
            pass
        else:
            if len(data) < MOST_BYTES:
                return data
    text = f"instance {process} ended its run by {type(error).__name__}: {error}"
    return json.dumps(_encode_exception(DistributionError(text))).encode()


def decode_error(data: bytes) -> Exception:
    """Decodes the error of another process.

    Raises:
      NoDataError: the bytes hold none.
    """
    try:
        record = json.loads(data)
        error_type = _find_imported_class(record["class"], Exception)
        arguments = [_decode_from_json(argument) for argument in record["arguments"]]
        state = {str(name): _decode_from_json(value) for name, value in record["state"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NoDataError(f"no error: {error}") from error
    return _build_exception(error_type, arguments, state)


def _encode_exception(error: Exception) -> Json:
    _, reduced_arguments, *reduced_state = cast(Sequence[Any], error.__reduce__())
    attributes = reduced_state[0] if reduced_state else vars(error)
    is_builtin = type(error).__module__ == builtins.__name__
    # Python's own errors hold more there: an `OSError` its file.
    arguments = reduced_arguments if is_builtin else error.args
    state: dict[str, Json] = {}
    for name, value in cast(dict[str, Any], attributes or {}).items():
        try:
            state[name] = _encode_as_json(value)
        except NoDataError:
            state[name] = None
    return {
        "class": _name_parts_of_class(type(error)),
        "arguments": [_encode_argument(argument) for argument in arguments],
        "state": state,
    }


def _encode_argument(value: object) -> Json:
    try:
        return _encode_as_json(value)
    except NoDataError:
        return str(value)


def _build_exception(
    error_type: type[Exception], arguments: Sequence[object], state: dict[str, object]
) -> Exception:
    if error_type.__module__ == builtins.__name__:
        try:
            error = error_type(*arguments)
        except TypeError as problem:
            raise NoDataError(f"arguments of {error_type.__name__}: {problem}") from problem
    else:
        base: Any = next(
            base_type
            for base_type in error_type.__mro__
            if base_type.__module__ == builtins.__name__
        )
        error: Exception = base.__new__(error_type)
        error.args = tuple(arguments)
    error.__dict__.update(state)
    return error


# --- values ---------------------------------------------------------------------------------------


def _encode_as_json(value: object) -> Json:
    """Encodes a value as JSON: plain ones as they are, others as an object with their kind."""
    if value is None or isinstance(value, str) or type(value) in (bool, int, float):
        return value
    if isinstance(value, bytes):
        return {"bytes": _encode_base64(value)}
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return _encode_array(value)
    if isinstance(value, tuple):
        members = [_encode_as_json(element) for element in cast(tuple[Any, ...], value)]
        is_named_tuple = hasattr(type(cast(Any, value)), "_fields")
        return {"tuple": members} | (
            {"class": _name_parts_of_class(type(value))} if is_named_tuple else {}
        )
    if type(value) is list:
        return {"list": [_encode_as_json(element) for element in cast(list[Any], value)]}
    if type(value) is dict:
        entries = cast(dict[Any, Any], value).items()
        return {"dict": [[_encode_as_json(key), _encode_as_json(item)] for key, item in entries]}
    raise NoDataError(f"a {type(value).__name__} is no data")


def _decode_from_json(data: Json) -> Any:
    match data:
        case {"bytes": text}:
            return base64.b64decode(text, validate=True)
        case {"array": text, "dtype": name, "shape": shape}:
            buffer = base64.b64decode(text, validate=True)
            return np.frombuffer(buffer, np.dtype(name)).reshape(shape).copy()
        case {"tuple": members, "class": name}:
            return tuple.__new__(_find_imported_class(name, tuple), map(_decode_from_json, members))
        case {"tuple": members}:
            return tuple(map(_decode_from_json, members))
        case {"list": members}:
            return list(map(_decode_from_json, members))
        case {"dict": pairs}:
            return {_decode_from_json(name): _decode_from_json(element) for name, element in pairs}
        case None | str() | bool() | int() | float():
            return data
        case _:
            raise NoDataError(f"{data!r:.60} is no value")


def _encode_array(value: object) -> Json:
    try:
        array = np.asarray(value)
    except Exception as problem:  # one that was donated, or a typed key
        raise NoDataError(f"an array without numbers: {problem}") from problem
    if array.dtype.hasobject:
        raise NoDataError("an array of objects is no data")
    return {
        "array": _encode_base64(array.tobytes()),
        "dtype": array.dtype.name,
        "shape": list(array.shape),
    }


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _name_parts_of_class(class_: type) -> list[str]:
    return [class_.__module__, *class_.__qualname__.split(".")]


def _find_imported_class(name: Sequence[str], base: type) -> Any:
    """Finds a class by module and qualified name, among modules that are imported already.

    Raises:
      NoDataError: there is no such class, or it is not derived from `base`.
    """
    module, *parts = name
    member: object = sys.modules.get(module)
    if module == _PUBLIC_ERRORS and parts:  # it imports an error's class when that is first used
        member = getattr(importlib.import_module(module), parts.pop(0), None)
    for part in parts:
        member = vars(member).get(part) if hasattr(member, "__dict__") else None
    if not isinstance(member, type) or not issubclass(member, base):
        raise NoDataError(f"{'.'.join(name)} is no class of {base.__name__} that is known here")
    return member
