"""Names for types of values that Python's annotations cannot say more closely."""

from __future__ import annotations

from typing import Any, TypeAlias

PyTree: TypeAlias = Any
"""A tree of arrays: an array, or a container that JAX knows (tuple, list, dict, ...) of trees."""

Json: TypeAlias = Any
"""A value of JSON: a dict with texts as keys, a list, a text, a number, a boolean or None."""

Keywords: TypeAlias = dict[str, Any]
"""Arguments, options or settings of any types, by name."""

TreeStructure: TypeAlias = Any
"""The structure of a tree, as `jax.tree.structure` returns it."""
