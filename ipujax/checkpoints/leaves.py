"""Converts JAX arrays to NumPy's own dtypes, which files can hold, and back.

Files know NumPy's own dtypes. Those that JAX has beside them (bfloat16, the kinds of float8, int4)
are written as the unsigned integers of the same bits, and typed keys as their data; what they were
is written in words beside them.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ipujax.checkpoints.checkpoint_checks import check
from ipujax.checkpoints.shards import (
    copy_to_host,
    find_sharding,
    has_all_shards,
    move_shards_to_devices,
    use_device_of,
)
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

    @property
    def raw_size(self) -> int:
        """The size of the array in the file, in bytes."""
        return math.prod(self.raw_shape) * np.dtype(self.raw_dtype).itemsize

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


ReadArray = Callable[[], np.ndarray]
"""Brings an array to the host, as the file holds it: contiguous, of one of NumPy's own dtypes."""


def encode_leaf(name: str, value: Any) -> tuple[Leaf, ReadArray]:
    """Returns the description of a leaf, and a function that reads the array for the file.

    An array of JAX stays on its devices until that function is called.

    Raises:
      CheckpointError: what cannot be read now or in this process, or is of an implementation of
        keys without a name. The function raises it too.
      CheckpointTypeError: what is no array of numbers.
    """
    if not isinstance(value, jax.Array) or isinstance(value, Tracer):
        array = _to_contiguous_numpy(name, value)
        return _describe_leaf(name, array), lambda: _view_as_raw(array)
    _require_readable(name, value)
    if not _is_key(value):
        leaf = _describe_leaf(name, value)
        return leaf, lambda: _view_as_raw(_to_contiguous_numpy(name, value))
    impl = jax.random.key_impl(value)
    if not isinstance(impl, str):
        raise check.value_error(
            f"leaf `{name}` holds keys of {impl}, which has no name to find it by",
            "save their jax.random.key_data",
        )
    data = jax.random.key_data(value)
    leaf = Leaf(name, str(value.dtype), value.shape, data.dtype.name, data.shape, impl)
    return leaf, lambda: _to_contiguous_numpy(name, data)


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


def as_like(leaf: Leaf, raw: np.ndarray, like: Any) -> Any:
    """Converts the array in a file to the kind that `like` has: Python's, NumPy's, or else JAX's.

    Args:
      leaf: its description, which `like` fits.
      raw: the array in the file; nobody else writes to its memory.
      like: an array of JAX, or a `jax.ShapeDtypeStruct` with a sharding, gives the result its
        sharding; each device gets its shard alone.

    Raises:
      CheckpointError: 64 bits in an array of JAX, where it does without; a sharding that does not
        fit the shape or names no devices; keys that this process does not have.
    """
    if type(like) in PYTHON:
        return type(like)(decode_leaf(leaf, raw))
    if isinstance(like, np.ndarray):
        return decode_leaf(leaf, raw)
    if isinstance(like, np.generic):
        return decode_leaf(leaf, raw)[()]
    if leaf.impl is None and jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype:
        raise check.value_error(
            f"JAX has no {leaf.dtype} now, which `like` asks for", "enable it: jax_enable_x64"
        )
    sharding = find_sharding(like)
    if sharding is not None:
        numbers = raw if leaf.impl is not None else decode_leaf(leaf, raw)
        target = jax.ShapeDtypeStruct(leaf.shape, like.dtype, sharding=sharding)
        return move_shards_to_devices(leaf.name, numbers, target, leaf.impl)
    with use_device_of(like):
        return jax.device_put(decode_leaf(leaf, raw))  # without a copy: nobody else has the memory


def _dtype_and_shape(name: str, like: Any) -> tuple[str, tuple[int, ...]]:
    if not hasattr(like, "dtype") or not hasattr(like, "shape"):
        raise check.wrong_type_error(
            "an array, a number or a jax.ShapeDtypeStruct", like, f"leaf `{name}` of `like`"
        )
    return str(like.dtype), tuple(like.shape)


def _describe_leaf(name: str, array: np.ndarray | jax.Array) -> Leaf:
    return Leaf(name, array.dtype.name, array.shape, _raw_dtype(array.dtype).name, array.shape)


def _raw_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype of NumPy's own that has the bits of a dtype."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def _view_as_raw(array: np.ndarray) -> np.ndarray:
    return array.view(_raw_dtype(array.dtype))


def _require_readable(name: str, array: jax.Array) -> None:
    if array.is_deleted():
        raise _unreadable_error(name, array, "Array has been deleted")
    if not has_all_shards(array):
        raise check.value_error(
            f"leaf `{name}` lies in part on devices of other processes",
            "gather the tree in all processes first, with ipu.popdist.gather or "
            "jax.experimental.multihost_utils.process_allgather(tree, tiled=True); or save it "
            "with orbax.checkpoint, which writes from all processes",
        )


def _unreadable_error(name: str, value: object, reason: object) -> Exception:
    return check.value_error(
        f"leaf `{name}`, of type {type(value).__name__}, cannot be read: {reason}",
        "save arrays outside of traced functions, before they are donated",
    )


def _is_key(value: object) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _to_contiguous_numpy(name: str, value: Any) -> np.ndarray:
    """Returns the numbers of a leaf as a contiguous array in this machine's byte order."""
    try:
        array = np.asarray(copy_to_host(value), order="C")
    except Exception as error:  # deleted, of a trace
        raise _unreadable_error(name, value, error) from error
    if not is_numeric_dtype(array.dtype):
        raise check.wrong_type_error("an array or a number", value, f"leaf `{name}` of the tree")
    return array.astype(array.dtype.newbyteorder("="), copy=False)
