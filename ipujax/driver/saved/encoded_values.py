"""Encodes Python values, dtypes and pytree structures as JSON; decoding imports and runs nothing.

A class (of a namedtuple, of a registered node) is written as its name, and `classes` has the table
in which that is looked up. Everything in a file is checked before JAX or NumPy gets it.
"""

from __future__ import annotations

import enum
import functools
import math
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.driver.saved.classes import (
    find_class,
    is_named_tuple_class,
    is_pytree_class,
    name_class,
)
from ipujax.ground import ExecutableError, Json, PyTree, TreeStructure
from lowering import dtype_name, jaxpr, shape_of

_NONE = "None"  # has a class without a module
_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
_MOST_ELEMENTS = 2**48  # of an array: more have no memory anywhere
_NUMBERS = "biufc"  # NumPy's kinds of dtypes that arrays of JAX have, beside those of ml_dtypes


# --- values that structures hold ------------------------------------------------------------------


def encode_value(value: Any, holder: str) -> Json:
    """Encodes a value of Python's plain types, an enum member or a class as JSON.

    Args:
      value: anything.
      holder: what holds the value, for messages.

    Raises:
      ExecutableError: for others, functions for instance.
    """
    if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
        return {"number": value.hex()} if isinstance(value, float) else value
    if isinstance(value, enum.Enum):
        return {"member": [name_class(type(value), holder), value.name]}
    if isinstance(value, type):
        return {"class": name_class(value, holder)}
    if type(value) in (tuple, list):
        return {type(value).__name__: [encode_value(element, holder) for element in value]}
    if isinstance(value, dict):
        return {
            "dict": [[encode_value(k, holder), encode_value(v, holder)] for k, v in value.items()]
        }
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    raise ExecutableError(
        f"{holder} holds {value!r}, of type {type(value).__name__}, which cannot be put into a "
        "file",
        fix="give the function arrays, numbers, texts and containers of them only",
    )


def decode_value(data: Json) -> Any:
    """Decodes the value that `encode_value` encoded.

    Raises:
      ExecutableError: nothing that `encode_value` gives.
    """
    if data is None or isinstance(data, bool | str | int):
        return data
    if not isinstance(data, dict) or len(data) != 1:  # pyright: ignore[reportUnknownArgumentType]
        _raise_malformed("a value", data)
    ((kind, content),) = data.items()  # pyright: ignore[reportUnknownVariableType]
    match kind:
        case "number":
            return float.fromhex(_check_text(content))
        case "member":
            return _find_enum_member(*_check_list(content, 2))
        case "class":
            return find_class(content)
        case "tuple":
            return tuple(map(decode_value, _check_list(content)))
        case "list":
            return list(map(decode_value, _check_list(content)))
        case "dict":
            pairs = [_check_list(pair, 2) for pair in _check_list(content)]
            return {decode_value(key): decode_value(value) for key, value in pairs}
        case "dtype":
            return _number_dtype(content)
        case _:
            _raise_malformed("a value", data)


def _find_enum_member(kind: Json, name: Json) -> enum.Enum:
    enum_class = find_class(kind)
    if not issubclass(enum_class, enum.Enum) or _check_text(name) not in enum_class.__members__:
        _raise_malformed("a member of an enum", [kind, name])
    return enum_class.__members__[name]


def _check_list(data: Json, count: int | None = None) -> list[Json]:
    """Returns a JSON list, or raises an error if it is none or has another length than `count`."""
    if not isinstance(data, list) or count not in (None, len(data)):  # pyright: ignore[reportUnknownArgumentType]
        _raise_malformed(f"a list of {'any number' if count is None else count}", data)
    return data  # pyright: ignore[reportUnknownVariableType]


def _check_text(data: Json) -> str:
    if not isinstance(data, str):
        _raise_malformed("a text", data)
    return data


def _raise_malformed(expected: str, data: Json) -> NoReturn:
    raise ExecutableError(f"{data!r:.200} stands where {expected} should be")


# --- structures -----------------------------------------------------------------------------------


def encode_tree(tree: PyTree, holder: str) -> Json:
    """Encodes a pytree structure as JSON, with None for each leaf.

    Raises:
      ExecutableError: it has nodes that cannot be put into a file.
    """
    node = tree.node_data()
    if node is None:
        return None
    kind, data = node
    children = [encode_tree(child, holder) for child in tree.children()]
    name = _NONE if kind is type(None) else name_class(kind, holder)
    return [name, encode_value(data, holder), children]


def decode_tree(data: Json) -> TreeStructure:
    """Decodes the structure that `encode_tree` encoded.

    Raises:
      ExecutableError: nothing that `encode_tree` gives, or a node whose data does not fit its
        children.
    """
    tree = _decode_tree_structure(data)
    try:
        jax.tree.unflatten(tree, [0] * tree.num_leaves)
    except Exception as error:  # of classes of others
        raise ExecutableError(f"the structure {data!r:.200} cannot be built: {error}") from error
    return tree


def _decode_tree_structure(data: Json) -> Any:
    if data is None:
        return jax.tree.structure(0)
    name, auxiliary, below = _check_list(data, 3)
    children = [_decode_tree_structure(child) for child in _check_list(below)]
    if name == _NONE:
        kind: type = type(None)
    else:
        kind = find_class(name)
    value = decode_value(auxiliary)
    _check_node(kind, value, len(children), data)
    return jax.tree_util.PyTreeDef.from_node_data_and_children(
        jax.tree_util.default_registry, (kind, value), children
    )


def _check_node(kind: type, auxiliary: Any, count: int, data: Json) -> None:
    """Raises an error for a node that JAX would accept but could not use."""
    if kind is dict:
        # Only JAX knows in which order it has the keys.
        is_right = isinstance(auxiliary, list) and len(auxiliary) == count  # pyright: ignore[reportUnknownArgumentType]
        keys = jax.tree.structure(dict.fromkeys(auxiliary, 0)).node_data() if is_right else None
        if keys is None or keys[1] != auxiliary:
            _raise_malformed("the keys of a dict and as many children", data)
    elif kind is type(None):
        if count or auxiliary is not None:
            _raise_malformed("None without children", data)
    elif kind in (tuple, list):
        if auxiliary is not None:
            _raise_malformed("a tuple or list without data of its own", data)
    elif not is_pytree_class(kind):
        if not is_named_tuple_class(kind):
            _raise_malformed("a node of a pytree", data)
        if auxiliary is not None or len(kind.__dict__["_fields"]) != count:
            _raise_malformed("a named tuple with its fields", data)


# --- arrays ---------------------------------------------------------------------------------------


def encode_aval(aval: jaxpr.Aval) -> Json:
    """Encodes the dtype, the shape and the weak type of an array."""
    return [dtype_name(aval), list(shape_of(aval)), bool(getattr(aval, "weak_type", False))]


def decode_aval(data: Json) -> jaxpr.Aval:
    """Decodes the aval that `encode_aval` encoded.

    Raises:
      ExecutableError: nothing that `encode_aval` gives.
    """
    name, shape, is_weak = _check_list(data, 3)
    if type(is_weak) is not bool:
        _raise_malformed("a type that is weak or not", data)
    return jaxpr.ShapedArray(_check_shape(shape), _find_dtype(_check_text(name)), weak_type=is_weak)


def _check_shape(data: Json) -> tuple[int, ...]:
    sizes = _check_list(data)
    if not all(type(size) is int and size >= 0 for size in sizes):
        _raise_malformed("a shape", data)
    if math.prod(max(size, 1) for size in sizes) > _MOST_ELEMENTS:
        _raise_malformed(f"a shape of at most {_MOST_ELEMENTS:,} elements", data)
    return tuple(sizes)


@functools.cache
def _find_dtype(name: str) -> Any:
    if name == "float0":
        return jax.dtypes.float0
    for implementation in _KEYS if name.startswith("key<") else ():
        dtype = jax.eval_shape(functools.partial(jax.random.key, impl=implementation), 0).dtype
        if str(dtype) == name:
            return dtype
    return _number_dtype(name)


def _number_dtype(data: Json) -> np.dtype:
    """Returns the number dtype that has exactly this name."""
    name = _check_text(data)
    try:
        dtype = jnp.dtype(name)
    except TypeError:
        _raise_malformed("a dtype", data)
    is_number = dtype.kind in _NUMBERS or jnp.issubdtype(dtype, jnp.number)
    if dtype.name != name or not is_number:
        _raise_malformed("a dtype of numbers", data)
    return dtype


def encode_array(array: Any) -> tuple[Json, bytes]:
    """Encodes an array as its dtype and shape, and its bytes."""
    data = np.ascontiguousarray(array)
    return [data.dtype.name, list(np.shape(array))], data.tobytes()


def decode_array(data: Json, content: bytes | memoryview) -> np.ndarray:
    """Decodes an array from its dtype, shape and bytes.

    Raises:
      ExecutableError: a dtype and a shape for which there are not just so many bytes.
    """
    name, sizes = _check_list(data, 2)
    dtype, shape = _number_dtype(name), _check_shape(sizes)
    if math.prod(shape) * dtype.itemsize != len(content):
        _raise_malformed(f"an array of {len(content):,} bytes", data)
    return np.frombuffer(content, dtype).reshape(shape)
