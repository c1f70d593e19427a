"""Prints pytree structures as Python literals, for messages."""

from __future__ import annotations

from collections.abc import Iterable

import jax

from ipujax.ground.value_types import TreeStructure


class _Word(str):
    """A text that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def structure_text(structure: TreeStructure, leaves: Iterable[str] | None = None) -> str:
    """Returns a structure with a text for each leaf, or a star: `{'w': *, 'layers': [*, *]}`."""
    words = ["*"] * structure.num_leaves if leaves is None else leaves
    try:
        return repr(jax.tree.unflatten(structure, [_Word(word) for word in words]))
    except Exception:  # a class of the user's that takes no texts for its arrays
        return str(structure).removeprefix("PyTreeDef(").removesuffix(")")
