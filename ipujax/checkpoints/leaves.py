"""Arrays as files can hold them: of NumPy's own dtypes; and arrays of JAX's dtypes again.

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

from ipujax.checkpoints.checks import check
from lowering import is_number

PYTHON = {bool: np.bool_, int: np.integer, float: jnp.floating, complex: np.complexfloating}
"""Python's numbers, and the dtypes that can be read as one."""


@dc.dataclass(frozen=True)
class Leaf:
    """An array of a checkpoint, without its numbers.

    Attributes:
      name: its path in the tree.
      dtype: its name; `key<fry>` for typed keys.
      shape: of the array.
      raw_dtype: of what the file holds, one of NumPy's own.
      raw_shape: of that; keys have an axis more.
      impl: the implementation of typed keys.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw_dtype: str
    raw_shape: tuple[int, ...]
    impl: str | None = None

    def __str__(self) -> str:
        return shown(self.dtype, self.shape)


def shown(dtype: Any, shape: tuple[int, ...]) -> str:
    """`float32[2,3]`."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def named(tree: Any) -> tuple[dict[str, Any], Any]:
    """The leaves of a tree by their names, in order, and its structure.

    Raises:
      CheckpointError: two leaves of one name, as `{"a/b": x, "a": {"b": y}}` has.
    """
    found, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves: dict[str, Any] = {}
    for path, leaf in found:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in leaves:
            raise check.refuse(
                f"two leaves of the tree have the name {name!r}",
                "rename one of them: a name is the path to a leaf, joined by slashes",
            )
        leaves[name] = leaf
    return leaves, structure


def written(name: str, value: Any) -> tuple[Leaf, np.ndarray]:
    """A leaf, and the array that a file holds for it.

    Raises:
      CheckpointError: what cannot be read now, or is of an implementation of keys without a name.
      CheckpointTypeError: what is no array of numbers.
    """
    if _is_key(value):
        impl = jax.random.key_impl(value)
        if not isinstance(impl, str):
            raise check.refuse(
                f"leaf `{name}` holds keys of {impl}, which has no name to find it by",
                "save their jax.random.key_data",
            )
        raw = _array(name, jax.random.key_data(value))
        return Leaf(name, str(value.dtype), value.shape, raw.dtype.name, raw.shape, impl), raw
    array = _array(name, value)
    raw = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
    return Leaf(name, array.dtype.name, array.shape, raw.dtype.name, raw.shape), raw


def read(leaf: Leaf, raw: np.ndarray) -> Any:
    """The array that was written: NumPy's, or JAX's for typed keys.

    Raises:
      CheckpointError: keys of an implementation that this process does not have.
    """
    if leaf.impl is not None:
        try:
            return jax.random.wrap_key_data(jnp.asarray(raw), impl=leaf.impl)
        except ValueError as error:
            raise check.refuse(f"leaf `{leaf.name}` cannot be read: {error}") from error
    return raw.view(np.dtype(leaf.dtype))


def misfit(leaf: Leaf, like: Any) -> str | None:
    """Whether an array cannot take the place of `like`: what that is, if so."""
    if type(like) in PYTHON:
        fits = not leaf.shape and leaf.impl is None
        fits = fits and jnp.issubdtype(np.dtype(leaf.dtype), PYTHON[type(like)])
        return None if fits else f"a Python {type(like).__name__}"
    dtype, shape = _form(leaf.name, like)
    return None if (leaf.dtype, leaf.shape) == (dtype, shape) else shown(dtype, shape)


def as_like(value: Any, like: Any) -> Any:
    """An array that fits, in the form that `like` has: Python's, NumPy's, or else JAX's.

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
        raise check.refuse(
            f"JAX has no {value.dtype} now, which `like` asks for", "enable it: jax_enable_x64"
        )
    return array


def _form(name: str, like: Any) -> tuple[str, tuple[int, ...]]:
    if not hasattr(like, "dtype") or not hasattr(like, "shape"):
        raise check.other_than(
            "an array, a number or a jax.ShapeDtypeStruct", like, f"leaf `{name}` of `like`"
        )
    return str(like.dtype), tuple(like.shape)


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _array(name: str, value: Any) -> np.ndarray:
    """The numbers of a leaf, in one piece and in this machine's order of bytes."""
    try:
        array = np.asarray(value, order="C")
    except Exception as error:  # deleted, of a trace, on other machines
        raise check.refuse(
            f"leaf `{name}`, of type {type(value).__name__}, cannot be read: {error}",
            "save arrays outside of traced functions, before they are donated",
        ) from error
    if not is_number(array.dtype):
        raise check.other_than("an array or a number", value, f"leaf `{name}` of the tree")
    return array.astype(array.dtype.newbyteorder("="), copy=False)
