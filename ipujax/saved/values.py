"""Python values, dtypes and pytree structures as JSON; nothing is imported or run to read them.

A class (of a namedtuple, of a registered node) is written as its name, and `classes` has the table
in which that is looked up. Whatever a file says is checked before JAX, or NumPy, is given it.
"""

from __future__ import annotations

import enum
import functools
import math
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.errors import ExecutableError
from ipujax.saved.classes import find_class, is_named_tuple, is_node, name_class
from lowering import dtype_name, jaxpr, shape_of

Json = Any
"""Dicts, lists, texts, numbers, booleans and None."""

_NONE = "None"  # has a class without a module
_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
_MOST_ELEMENTS = 2**48  # of an array: more have no memory anywhere
_NUMBERS = "biufc"  # NumPy's kinds of dtypes that arrays of JAX have, beside those of ml_dtypes


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
        return {"member": [name_class(type(value), what), value.name]}
    if isinstance(value, type):
        return {"class": name_class(value, what)}
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
    """The value that `encode` was given.

    Raises:
      ExecutableError: nothing that `encode` gives.
    """
    if data is None or isinstance(data, bool | str | int):
        return data
    if not isinstance(data, dict) or len(data) != 1:  # pyright: ignore[reportUnknownArgumentType]
        _refuse("a value", data)
    ((kind, content),) = data.items()  # pyright: ignore[reportUnknownVariableType]
    match kind:
        case "number":
            return float.fromhex(_text(content))
        case "member":
            return _member_of(*_items(content, 2))
        case "class":
            return find_class(content)
        case "tuple":
            return tuple(map(decode, _items(content)))
        case "list":
            return list(map(decode, _items(content)))
        case "dict":
            pairs = [_items(each, 2) for each in _items(content)]
            return {decode(key): decode(value) for key, value in pairs}
        case "dtype":
            return _number_dtype(content)
        case _:
            _refuse("a value", data)


def _member_of(kind: Json, name: Json) -> enum.Enum:
    found = find_class(kind)
    if not issubclass(found, enum.Enum) or _text(name) not in found.__members__:
        _refuse("a member of an enum", [kind, name])
    return found.__members__[name]


def _items(data: Json, count: int | None = None) -> list[Any]:
    """The entries of a list, of so many if a count is given."""
    if not isinstance(data, list) or count not in (None, len(data)):  # pyright: ignore[reportUnknownArgumentType]
        _refuse(f"a list of {'any number' if count is None else count}", data)
    return data  # pyright: ignore[reportUnknownVariableType]


def _text(data: Json) -> str:
    if not isinstance(data, str):
        _refuse("a text", data)
    return data


def _refuse(wanted: str, data: Json) -> NoReturn:
    raise ExecutableError(f"{data!r:.200} stands where {wanted} should be")


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
    name = _NONE if kind is type(None) else name_class(kind, what)
    return [name, encode(data, what), children]


def decode_tree(data: Json) -> Any:
    """The structure that `encode_tree` was given.

    Raises:
      ExecutableError: nothing that `encode_tree` gives, or a node whose data does not fit its
        children.
    """
    tree = _decode_node(data)
    try:
        jax.tree.unflatten(tree, [0] * tree.num_leaves)
    except Exception as error:  # of classes of others
        raise ExecutableError(f"the structure {data!r:.200} cannot be built: {error}") from error
    return tree


def _decode_node(data: Json) -> Any:
    if data is None:
        return jax.tree.structure(0)
    name, auxiliary, below = _items(data, 3)
    children = [_decode_node(child) for child in _items(below)]
    if name == _NONE:
        kind: type = type(None)
    else:
        kind = find_class(name)
    value = decode(auxiliary)
    _check_node(kind, value, len(children), data)
    return jax.tree_util.PyTreeDef.from_node_data_and_children(
        jax.tree_util.default_registry, (kind, value), children
    )


def _check_node(kind: type, auxiliary: Any, count: int, data: Json) -> None:
    """Refuses nodes that JAX would take, and could not make anything of."""
    if kind is dict:
        # Only JAX knows in which order it has the keys.
        is_right = isinstance(auxiliary, list) and len(auxiliary) == count  # pyright: ignore[reportUnknownArgumentType]
        keys = jax.tree.structure(dict.fromkeys(auxiliary, 0)).node_data() if is_right else None
        if keys is None or keys[1] != auxiliary:
            _refuse("the keys of a dict and as many children", data)
    elif kind is type(None):
        if count or auxiliary is not None:
            _refuse("None without children", data)
    elif kind in (tuple, list):
        if auxiliary is not None:
            _refuse("a tuple or list without data of its own", data)
    elif not is_node(kind):
        if not is_named_tuple(kind):
            _refuse("a node of a pytree", data)
        if auxiliary is not None or len(kind.__dict__["_fields"]) != count:
            _refuse("a named tuple with its fields", data)


# --- arrays ---------------------------------------------------------------------------------------


def encode_aval(aval: jaxpr.Aval) -> Json:
    """Dtype, shape, and whether the type is weak."""
    return [dtype_name(aval), list(shape_of(aval)), bool(getattr(aval, "weak_type", False))]


def decode_aval(data: Json) -> jaxpr.Aval:
    """What `encode_aval` was given.

    Raises:
      ExecutableError: nothing that `encode_aval` gives.
    """
    name, shape, is_weak = _items(data, 3)
    if type(is_weak) is not bool:
        _refuse("a type that is weak or not", data)
    return jaxpr.ShapedArray(_shape(shape), _dtype_of(_text(name)), weak_type=is_weak)


def _shape(data: Json) -> tuple[int, ...]:
    sizes = _items(data)
    if not all(type(size) is int and size >= 0 for size in sizes):
        _refuse("a shape", data)
    if math.prod(max(size, 1) for size in sizes) > _MOST_ELEMENTS:
        _refuse(f"a shape of at most {_MOST_ELEMENTS:,} elements", data)
    return tuple(sizes)


@functools.cache
def _dtype_of(name: str) -> Any:
    if name == "float0":
        return jax.dtypes.float0
    for implementation in _KEYS if name.startswith("key<") else ():
        dtype = jax.eval_shape(functools.partial(jax.random.key, impl=implementation), 0).dtype
        if str(dtype) == name:
            return dtype
    return _number_dtype(name)


def _number_dtype(data: Json) -> np.dtype:
    """The dtype of numbers that has exactly this name."""
    name = _text(data)
    try:
        dtype = jnp.dtype(name)
    except TypeError:
        _refuse("a dtype", data)
    is_number = dtype.kind in _NUMBERS or jnp.issubdtype(dtype, jnp.number)
    if dtype.name != name or not is_number:
        _refuse("a dtype of numbers", data)
    return dtype


def encode_array(array: Any) -> tuple[Json, bytes]:
    """An array: what it is like, and its bytes."""
    data = np.ascontiguousarray(array)
    return [data.dtype.name, list(np.shape(array))], data.tobytes()


def decode_array(data: Json, content: bytes | memoryview) -> np.ndarray:
    """The array.

    Raises:
      ExecutableError: a dtype and a shape for which there are not just so many bytes.
    """
    name, sizes = _items(data, 2)
    dtype, shape = _number_dtype(name), _shape(sizes)
    if math.prod(shape) * dtype.itemsize != len(content):
        _refuse(f"an array of {len(content):,} bytes", data)
    return np.frombuffer(content, dtype).reshape(shape)
