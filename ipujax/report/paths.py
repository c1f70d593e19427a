"""What a user calls the arguments and results of a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from lowering import ir

if TYPE_CHECKING:
    from ipujax.driver.stages import Lowered


def arguments(lowered: Lowered) -> Iterator[tuple[str, int]]:
    """Paths such as `args[0]['w']` and `kwargs['x']`, each with its value in the program."""
    positions = _positions(lowered)
    for path, number in _paths(lowered.in_tree, lowered.modelled.inputs):
        if isinstance(path[0], jax.tree_util.SequenceKey) and path[0].idx == 1:
            yield "kwargs" + jax.tree_util.keystr(path[1:]), int(number)
        else:
            first: Any = path[1]
            rest = jax.tree_util.keystr(path[2:])
            yield f"args[{positions[first.idx]}]{rest}", int(number)


def results(lowered: Lowered) -> Iterator[tuple[str, int]]:
    """Paths such as `results` and `results[1]`, each with its value in the program."""
    for path, number in _paths(lowered.out_tree, lowered.modelled.outputs):
        yield "results" + jax.tree_util.keystr(path), int(number)


def _paths(tree: Any, values: tuple[ir.ValueId, ...]) -> list[tuple[Any, ir.ValueId]]:
    flat = values[: tree.num_leaves]
    return jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(tree, flat))[0]


def _positions(lowered: Lowered) -> list[int]:
    """The user's position of each positional argument that is not static."""
    dynamic = len(jax.tree_util.treedef_children(lowered.in_tree)[0].children())
    count = dynamic + len(lowered.static.numbers)
    static = {number % count for number in lowered.static.numbers} if count else set[int]()
    return [i for i in range(count) if i not in static]
