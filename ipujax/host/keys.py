"""Typed random keys in queues: what travels is their words, and each end has keys again.

A key stands in an element as a node of its own, whose one leaf are the words. So the structure of
an element says which leaves are keys, and of which algorithm.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering import jaxpr


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["words"], meta_fields=["algorithm"]
)
@dc.dataclass(frozen=True)
class KeyWords:
    """A typed key, or an array of such.

    Attributes:
      words: what `jax.random.key_data` gives, or what stands for that.
      algorithm: the name that JAX has for what makes random bits of them.
    """

    words: Any
    algorithm: str


def is_key(leaf: object) -> bool:
    """Returns whether a leaf is an array of typed keys."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def keys_to_words(tree: Any) -> Any:
    """Returns a pytree with `KeyWords` in the place of typed keys."""
    return jax.tree.map(_to_words, tree)


def words_to_keys(tree: Any) -> Any:
    """Returns a pytree with typed keys, or their avals, in the place of `KeyWords`."""
    return jax.tree.map(_to_keys, tree, is_leaf=_is_words)


def _to_words(leaf: Any) -> Any:
    if not is_key(leaf):
        return leaf
    return KeyWords(jax.random.key_data(leaf), str(jax.random.key_impl(leaf)))


def _to_keys(node: Any) -> Any:
    if not _is_words(node):
        return node
    wrap = functools.partial(jax.random.wrap_key_data, impl=node.algorithm)
    if isinstance(node.words, (jax.ShapeDtypeStruct, jaxpr.ShapedArray)):
        return jax.eval_shape(wrap, node.words)
    return wrap(jnp.asarray(node.words) if isinstance(node.words, np.ndarray) else node.words)


def _is_words(node: object) -> bool:
    return isinstance(node, KeyWords)
