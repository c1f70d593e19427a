"""Takes slices of parameters out of a function, so that each stage gets its slice alone.

A model may keep its layers stacked, in leaves `[layers, ...]`. A slice of such a leaf becomes an
argument by itself; its gradients are put back together after the last micro-batch.
"""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.pipelines.micro_batch_arguments import ArgumentLeaf, Role
from ipujax.pipelines.traced_function import TracedFunction
from lowering import jaxpr, pipelines


@dc.dataclass(frozen=True, eq=False)
class SlicedLeaf(ArgumentLeaf):
    """A slice of a leaf.

    Attributes:
      parent: the leaf.
      starts: the first index along each axis.
      stops: the index after the last along each axis.
    """

    parent: ArgumentLeaf
    starts: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def source(self) -> ArgumentLeaf:
        """The leaf of which this is a slice."""
        return self.parent

    def stack_micro_batches(self, micro_batches: int) -> jax.Array:
        """Returns the slice."""
        return lax.slice(self.parent.value, self.starts, self.stops)


def hoist_slices(function: TracedFunction) -> TracedFunction:
    """Returns a function whose static slices of whole leaves are arguments."""
    leaves = {
        var: leaf
        for var, leaf in zip(function.closed.jaxpr.invars, function.leaves, strict=True)
        if leaf.role in (Role.DIFFERENTIATED, Role.WHOLE)
    }
    body = pipelines.slice_leaves_first(function.closed, leaves).jaxpr
    slices: dict[int, SlicedLeaf] = {}
    for eqn in body.eqns:
        if eqn.primitive.name == "slice" and set(eqn.params["strides"] or (1,)) <= {1}:
            source = eqn.invars[0]
            parent = None if isinstance(source, jaxpr.Literal) else leaves.get(source)
            if parent is not None:
                slices[id(eqn)] = _slice_leaf(parent, eqn.params)
    if not slices:
        return function
    remaining = [eqn for eqn in body.eqns if id(eqn) not in slices]
    taken = [eqn for eqn in body.eqns if id(eqn) in slices]
    hoisted = jaxpr.replace_equations(body, remaining, body.outvars)
    debug = hoisted.debug_info._replace(arg_names=None, result_paths=None)
    invars = [*body.invars, *(eqn.outvars[0] for eqn in taken)]
    closed = jaxpr.ClosedJaxpr(
        hoisted.replace(invars=invars, debug_info=debug), function.closed.consts
    )
    all_leaves = (*function.leaves, *(slices[id(eqn)] for eqn in taken))
    return dc.replace(function, closed=closed, leaves=all_leaves)


def _slice_leaf(parent: ArgumentLeaf, params: dict[str, Any]) -> SlicedLeaf:
    starts, stops = params["start_indices"], params["limit_indices"]
    text = ", ".join(f"{start}:{stop}" for start, stop in zip(starts, stops, strict=True))
    return SlicedLeaf(f"{parent.path}[{text}]", parent.role, parent.value, parent, starts, stops)


def assemble_gradients(
    gradients: dict[ArgumentLeaf, jax.Array],
) -> dict[ArgumentLeaf, jax.Array]:
    """Returns the gradients of leaves, given those of leaves and of slices of them."""
    whole = {a: g for a, g in gradients.items() if not isinstance(a, SlicedLeaf)}
    parts: dict[ArgumentLeaf, list[tuple[SlicedLeaf, jax.Array]]] = {}
    for leaf, gradient in gradients.items():
        if isinstance(leaf, SlicedLeaf):
            parts.setdefault(leaf.parent, []).append((leaf, gradient))
    for parent, slices in parts.items():
        total = _assemble_slices(parent, slices)
        whole[parent] = whole[parent] + total if parent in whole else total
    return whole


def _assemble_slices(parent: ArgumentLeaf, slices: list[tuple[SlicedLeaf, jax.Array]]) -> jax.Array:
    """Returns the gradient of a leaf: those of its slices where they belong, zeros elsewhere."""
    ordered = sorted(slices, key=lambda entry: entry[0].starts)
    if _tile_first_axis(parent.value.shape, [leaf for leaf, _ in ordered]):
        return jnp.concatenate([gradient for _, gradient in ordered])
    total = jnp.zeros(parent.value.shape, slices[0][1].dtype)
    for leaf, gradient in slices:
        region = tuple(map(slice, leaf.starts, leaf.stops))
        total = total.at[region].add(gradient)
    return total


def _tile_first_axis(shape: tuple[int, ...], slices: list[SlicedLeaf]) -> bool:
    """Returns whether slices, one after the other along axis 0, are the whole leaf."""
    if any(leaf.starts[1:] != (0,) * (len(shape) - 1) or leaf.stops[1:] != shape[1:]
           for leaf in slices):  # fmt: skip
        return False
    ends = [0, *(leaf.stops[0] for leaf in slices)]
    return [leaf.starts[0] for leaf in slices] == ends[:-1] and ends[-1] == shape[0]
