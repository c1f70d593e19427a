"""Converts typed random keys in queues to words and back.

A key is a node of an element, with its words as the one leaf. So the structure of
an element says which leaves are keys, and of which algorithm.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import PyTree
from lowering import jaxpr


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["words"], meta_fields=["algorithm"]
)
@dc.dataclass(frozen=True)
class KeyWords:
    """A typed key, or an array of such.

    Attributes:
      words: the result of `jax.random.key_data`, or its aval.
      algorithm: JAX's name of the generator of random bits.
    """

    words: Any
    algorithm: str


def is_key(leaf: object) -> bool:
    """Returns whether a leaf is an array of typed keys."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def keys_to_words(tree: PyTree) -> PyTree:
    """Returns a pytree with `KeyWords` in the place of typed keys."""
    return jax.tree.map(_key_to_words, tree)


def words_to_keys(tree: PyTree) -> PyTree:
    """Returns a pytree with typed keys, or their avals, in the place of `KeyWords`."""
    return jax.tree.map(_words_to_key, tree, is_leaf=_is_key_words)


def _key_to_words(leaf: Any) -> PyTree:
    if not is_key(leaf):
        return leaf
    return KeyWords(jax.random.key_data(leaf), str(jax.random.key_impl(leaf)))


def _words_to_key(node: Any) -> PyTree:
    if not _is_key_words(node):
        return node
    wrap = functools.partial(jax.random.wrap_key_data, impl=node.algorithm)
    if isinstance(node.words, (jax.ShapeDtypeStruct, jaxpr.ShapedArray)):
        return jax.eval_shape(wrap, node.words)
    return wrap(jnp.asarray(node.words) if isinstance(node.words, np.ndarray) else node.words)


def _is_key_words(node: object) -> bool:
    return isinstance(node, KeyWords)
