"""Converts JAX arrays to NumPy's own dtypes, which files can hold, and back.

Files know NumPy's own dtypes. Those that JAX has beside them (bfloat16, the kinds of float8, int4)
are written as the unsigned integers of the same bits, and typed keys as their data; what they were
is written in words beside them.
"""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checkpoints.checkpoint_checks import check
from ipujax.ground import PyTree, TreeStructure
from lowering import is_numeric_dtype

PYTHON = {bool: np.bool_, int: np.integer, float: jnp.floating, complex: np.complexfloating}
"""Python's number types, and the dtypes that can be converted to them."""


@dc.dataclass(frozen=True)
class Leaf:
    """An array of a checkpoint, without its numbers.

    Attributes:
      name: its path in the tree.
      dtype: its name; `key<fry>` for typed keys.
      shape: the shape of the array.
      raw_dtype: the dtype of the array in the file, one of NumPy's own.
      raw_shape: the shape of the array in the file; that of keys has one more axis.
      impl: the implementation of typed keys.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw_dtype: str
    raw_shape: tuple[int, ...]
    impl: str | None = None

    def __str__(self) -> str:
        return dtype_and_shape_text(self.dtype, self.shape)


def dtype_and_shape_text(dtype: object, shape: tuple[int, ...]) -> str:
    """Returns a dtype and a shape as a text such as `float32[2,3]`."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def flatten_by_name(tree: PyTree) -> tuple[dict[str, PyTree], TreeStructure]:
    """Returns the leaves of a tree by their names, in order, and its structure.

    Raises:
      CheckpointError: two leaves of one name, as `{"a/b": x, "a": {"b": y}}` has.
    """
    paths_and_leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves: dict[str, object] = {}
    for path, leaf in paths_and_leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in leaves:
            raise check.value_error(
                f"two leaves of the tree have the name {name!r}",
                "rename one of them: a name is the path to a leaf, joined by slashes",
            )
        leaves[name] = leaf
    return leaves, structure


def encode_leaf(name: str, value: Any) -> tuple[Leaf, np.ndarray]:
    """Returns the description of a leaf, and the array that a file holds for it.

    Raises:
      CheckpointError: what cannot be read now, or is of an implementation of keys without a name.
      CheckpointTypeError: what is no array of numbers.
    """
    if _is_key(value):
        impl = jax.random.key_impl(value)
        if not isinstance(impl, str):
            raise check.value_error(
                f"leaf `{name}` holds keys of {impl}, which has no name to find it by",
                "save their jax.random.key_data",
            )
        raw = _to_contiguous_numpy(name, jax.random.key_data(value))
        return Leaf(name, str(value.dtype), value.shape, raw.dtype.name, raw.shape, impl), raw
    array = _to_contiguous_numpy(name, value)
    raw = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
    return Leaf(name, array.dtype.name, array.shape, raw.dtype.name, raw.shape), raw


def decode_leaf(leaf: Leaf, raw: np.ndarray) -> Any:
    """Restores a leaf from the array in a file: NumPy's, or JAX's for typed keys.

    Raises:
      CheckpointError: keys of an implementation that this process does not have.
    """
    if leaf.impl is not None:
        try:
            return jax.random.wrap_key_data(jnp.asarray(raw), impl=leaf.impl)
        except ValueError as error:
            raise check.value_error(f"leaf `{leaf.name}` cannot be read: {error}") from error
    return raw.view(np.dtype(leaf.dtype))


def describe_leaf_mismatch(leaf: Leaf, like: Any) -> str | None:
    """Describes the array that `like` needs if a leaf cannot replace it; None if it can."""
    if type(like) in PYTHON:
        fits = not leaf.shape and leaf.impl is None
        fits = fits and jnp.issubdtype(np.dtype(leaf.dtype), PYTHON[type(like)])
        return None if fits else f"a Python {type(like).__name__}"
    dtype, shape = _dtype_and_shape(leaf.name, like)
    return (
        None if (leaf.dtype, leaf.shape) == (dtype, shape) else dtype_and_shape_text(dtype, shape)
    )


def as_like(value: Any, like: Any) -> Any:
    """Converts an array to the kind that `like` has: Python's, NumPy's, or else JAX's.

    Raises:
      CheckpointError: 64 bits in an array of JAX, where it does without.
    """
    if type(like) in PYTHON:
        return type(like)(value)
    if isinstance(like, np.ndarray):
        return value
    if isinstance(like, np.generic):
        return value[()]
    array = jax.device_put(value)  # without a copy, as nobody else has the memory
    if array.dtype != value.dtype:
        raise check.value_error(
            f"JAX has no {value.dtype} now, which `like` asks for", "enable it: jax_enable_x64"
        )
    return array


def _dtype_and_shape(name: str, like: Any) -> tuple[str, tuple[int, ...]]:
    if not hasattr(like, "dtype") or not hasattr(like, "shape"):
        raise check.wrong_type_error(
            "an array, a number or a jax.ShapeDtypeStruct", like, f"leaf `{name}` of `like`"
        )
    return str(like.dtype), tuple(like.shape)


def _is_key(value: object) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _to_contiguous_numpy(name: str, value: Any) -> np.ndarray:
    """Returns the numbers of a leaf as a contiguous array in this machine's byte order."""
    try:
        array = np.asarray(value, order="C")
    except Exception as error:  # deleted, of a trace, on other machines
        raise check.value_error(
            f"leaf `{name}`, of type {type(value).__name__}, cannot be read: {error}",
            "save arrays outside of traced functions, before they are donated",
        ) from error
    if not is_numeric_dtype(array.dtype):
        raise check.wrong_type_error("an array or a number", value, f"leaf `{name}` of the tree")
    return array.astype(array.dtype.newbyteorder("="), copy=False)
