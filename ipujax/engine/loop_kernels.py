"""What XLA compiles for a streamed loop: its chunks."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax import lax

from ipujax.engine.compilation import Compiled
from ipujax.engine.placement import Axis
from lowering import ir, jaxpr, shape_of

if TYPE_CHECKING:
    from ipujax.engine.loops import StreamedLoop

Arrays = Sequence[jax.Array]
Index = jax.Array | int

# Iterations that the smaller buffers hold, where a loop's count is known at run time only.
FEW = 16


def capacities(loop: StreamedLoop) -> Sequence[int]:
    """Iterations that the buffers of a loop's chunks hold, the fewest first.

    As many as the loop has, a power of two so that equal kernels are found again by XLA's cache;
    few and many where nobody knows.
    """
    count = loop.node.count
    if not loop.ins or count == 0:
        return [loop.capacity]
    if count is None:
        return sorted({min(FEW, loop.capacity), loop.capacity})
    return [min(loop.capacity, 1 << (count - 1).bit_length())]


@dc.dataclass(frozen=True)
class LoopKernel:
    """A chunk of iterations of a loop, on all replicas.

    Attributes:
      compiled: takes the number of iterations, loop variables, constants and elements.
      bring: brings the number and the elements to the loop's devices.
    """

    compiled: Compiled
    bring: Callable[..., Sequence[jax.Array]]

    def __call__(self, count: int, held: Arrays, elements: Sequence[np.ndarray]) -> list[jax.Array]:
        """Runs it.

        Args:
          count: iterations.
          held: loop variables and constants.
          elements: of the infeeds, NumPy's arrays.
        """
        iterations, *brought = self.bring(np.int32(count), *elements)
        return self.compiled(iterations, *held, *brought)

    def direct(self, count: int, held: Arrays, elements: Sequence[np.ndarray]) -> list[jax.Array]:
        """The same in a fraction of the time, if nothing is committed to a device."""
        return self.compiled.from_numpy(np.int32(count), *held, *elements)


def of_chunks(loop: StreamedLoop, capacity: int) -> LoopKernel:
    """At most so many iterations, whose loop variables are donated."""
    placement, machine = loop.placement, loop.machine
    avals = machine.program.avals
    leaves = [(step, avals[value]) for step, value in loop.taken]
    held = [
        machine.struct(value, loop.ipu)
        for value in (*(c.initial for c in loop.node.carry), *loop.consts)
    ]
    count = placement.struct(np.int32(1), loop.ipu, None)
    elements = [placement.struct(_rows(step, a, capacity), loop.ipu, 1) for step, a in leaves]
    in_axes: list[Axis] = [None, *[0] * len(held), *[1] * len(leaves)]
    out_axes: list[Axis] = [None, *[0] * len(loop.node.carry), *[1] * len(loop.sent)]
    whole = placement.replicated(partial(loop.chunk, capacity), loop.ipu, in_axes, out_axes)
    donated = tuple(range(1, 1 + len(loop.node.carry)))
    return LoopKernel(
        machine.compilation.add(
            whole,
            [count, *held, *elements],
            donate_argnums=donated,
            out_shardings=placement.result_homes(loop.ipu, out_axes),
        ),
        machine.bringing([count, *elements], loop.ipu),
    )


def _rows(step: ir.StreamIn, aval: jaxpr.Aval, capacity: int) -> jaxpr.Aval:
    """One replica's leaf of an infeed: of as many iterations as a chunk may have."""
    shape = aval.shape if step.count is None else aval.shape[1:]
    return jax.ShapeDtypeStruct((capacity * (step.count or 1), *shape), aval.dtype)


def element(leaf: jax.Array, index: Index, count: int | None) -> jax.Array:
    """An iteration's element, or its `count` stacked ones."""
    if count is None:
        return lax.dynamic_index_in_dim(leaf, index, keepdims=False)
    return lax.dynamic_slice_in_dim(leaf, index * count, count)


def row_shape(step: ir.StreamOut, aval: jaxpr.Aval) -> tuple[int, ...]:
    """The shape of one of the elements that an iteration sends."""
    shape = shape_of(aval)
    return shape if step.count is None else shape[1:]


def with_row(step: ir.StreamOut, whole: jax.Array, row: jax.Array, index: Index) -> jax.Array:
    """The buffer with what an iteration sends; with its last element, if the buffer has one."""
    rows = row[None] if step.count is None else row
    if whole.shape[0] == 1:
        return rows[-1:]
    return lax.dynamic_update_slice_in_dim(whole, rows, index * rows.shape[0], 0)
