"""Python values, dtypes and pytree structures as JSON; nothing is imported or run to read them.

A class (of a namedtuple, of a registered node) is written as its name. It is looked up, when the
file is read, among the modules that are imported already: a file cannot have code imported.
"""

from __future__ import annotations

import enum
import functools
import importlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.errors import ExecutableError
from lowering import dtype_name, jaxpr, shape_of

Json = Any
"""Dicts, lists, texts, numbers, booleans and None."""

_NONE = "None"  # has a class without a module
_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
# What ipujax is made of may be imported whenever a file names it.
_OURS = ("ipujax", "jax", "optax")


# --- values that structures hold ------------------------------------------------------------------


def encode(value: Any, what: str) -> Json:
    """A value as JSON: of Python's plain types, an enum's, or a class.

    Args:
      value: anything.
      what: whose value it is, for messages.

    Raises:
      ExecutableError: for others, functions for instance.
    """
    if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
        return {"number": value.hex()} if isinstance(value, float) else value
    if isinstance(value, enum.Enum):
        return {"member": [_name_of(type(value), what), value.name]}
    if isinstance(value, type):
        return {"class": _name_of(value, what)}
    if type(value) in (tuple, list):
        return {type(value).__name__: [encode(each, what) for each in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(k, what), encode(v, what)] for k, v in value.items()]}
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    raise ExecutableError(
        f"{what} holds {value!r}, of type {type(value).__name__}, which cannot be put into a file",
        fix="give the function arrays, numbers, texts and containers of them only",
    )


def decode(data: Json) -> Any:
    """The value that `encode` was given."""
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    match kind:
        case "number":
            return float.fromhex(content)
        case "member":
            return _class_of(content[0])[content[1]]
        case "class":
            return _class_of(content)
        case "tuple":
            return tuple(map(decode, content))
        case "list":
            return list(map(decode, content))
        case "dict":
            return {decode(k): decode(v) for k, v in content}
        case "dtype":
            return jnp.dtype(content)
        case _:
            raise ValueError(f"a value of kind {kind!r}")


def _name_of(kind: type, what: str) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _found(name) is not kind:
        raise ExecutableError(
            f"{what} holds a {kind.__qualname__}, a class that no module has under that name, so "
            "that another process would not find it",
            fix="define the class at the top of a module, not in a function",
        )
    return name


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    if module.partition(".")[0] in _OURS:
        importlib.import_module(module)
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _class_of(name: str) -> Any:
    found = _found(name)
    if not isinstance(found, type):
        module, _, path = name.partition(":")
        raise ExecutableError(
            f"the program's arguments or results hold a {path} of `{module}`, which is not there",
            fix=f"import {module} before loading the executable, in the version that it was "
            "saved with",
        )
    return found


# --- structures -----------------------------------------------------------------------------------


def encode_tree(tree: Any, what: str) -> Json:
    """A pytree structure as JSON: None for a leaf.

    Raises:
      ExecutableError: it has nodes that cannot be put into a file.
    """
    node = tree.node_data()
    if node is None:
        return None
    kind, data = node
    children = [encode_tree(child, what) for child in tree.children()]
    name = _NONE if kind is type(None) else _name_of(kind, what)
    return [name, encode(data, what), children]


def decode_tree(data: Json) -> Any:
    """The structure that `encode_tree` was given."""
    if data is None:
        return jax.tree.structure(0)
    name, auxiliary, children = data
    kind = type(None) if name == _NONE else _class_of(name)
    return jax.tree_util.PyTreeDef.from_node_data_and_children(
        jax.tree_util.default_registry,
        (kind, decode(auxiliary)),
        [decode_tree(child) for child in children],
    )


# --- arrays ---------------------------------------------------------------------------------------


def encode_aval(aval: jaxpr.Aval) -> Json:
    """Dtype, shape, and whether the type is weak."""
    return [dtype_name(aval), list(shape_of(aval)), bool(getattr(aval, "weak_type", False))]


def decode_aval(data: Json) -> jaxpr.Aval:
    """What `encode_aval` was given."""
    name, shape, is_weak = data
    return jaxpr.ShapedArray(tuple(shape), _dtype_of(name), weak_type=is_weak)


@functools.cache
def _dtype_of(name: str) -> Any:
    if name == "float0":
        return jax.dtypes.float0
    for implementation in _KEYS if name.startswith("key<") else ():
        dtype = jax.eval_shape(functools.partial(jax.random.key, impl=implementation), 0).dtype
        if str(dtype) == name:
            return dtype
    return jnp.dtype(name)


def encode_array(array: Any) -> tuple[Json, bytes]:
    """An array: what it is like, and its bytes."""
    data = np.ascontiguousarray(array)
    return [data.dtype.name, list(np.shape(array))], data.tobytes()


def decode_array(data: Json, content: bytes | memoryview) -> np.ndarray:
    """The array."""
    name, shape = data
    return np.frombuffer(content, jnp.dtype(name)).reshape(shape)
