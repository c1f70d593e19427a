"""The kernels of a streamed loop that XLA compiles: its chunks of iterations."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax import lax

from ipujax.engine.device_placement import Axis
from ipujax.engine.task_compilation import Compiled
from lowering import ir, jaxpr, shape_of

if TYPE_CHECKING:
    from ipujax.engine.loop_steps import StreamedLoop

Arrays = Sequence[jax.Array]
Index = jax.Array | int

# Iterations that the smaller buffers hold, where a loop's count is known at run time only.
FEW = 16


def choose_chunk_capacities(loop: StreamedLoop) -> Sequence[int]:
    """Returns how many iterations the buffers of a loop's chunks hold, smallest first.

    As many as the loop has, a power of two so that equal kernels are found again by XLA's cache;
    a small and a large one if the count is unknown.
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

    def __call__(
        self, count: int, resident: Arrays, elements: Sequence[np.ndarray]
    ) -> list[jax.Array]:
        """Runs a chunk of iterations.

        Args:
          count: iterations.
          resident: loop variables and constants, which are on the devices.
          elements: of the infeeds, NumPy's arrays.
        """
        iterations, *moved = self.bring(np.int32(count), *elements)
        return self.compiled(iterations, *resident, *moved)

    def run_on_uncommitted_arrays(
        self, count: int, resident: Arrays, elements: Sequence[np.ndarray]
    ) -> list[jax.Array]:
        """Runs a chunk through jit's fast path, for arguments that are committed to no device."""
        return self.compiled.run_on_uncommitted_arrays(np.int32(count), *resident, *elements)


def build_chunk_kernel(loop: StreamedLoop, capacity: int) -> LoopKernel:
    """Builds the kernel of at most `capacity` iterations, whose loop variables are donated."""
    placement, machine = loop.placement, loop.machine
    resident_structs = [
        machine.value_struct(value, loop.ipu)
        for value in (*(c.initial for c in loop.node.carry), *loop.consts)
    ]
    count = placement.array_struct(np.int32(1), loop.ipu, None)
    elements = list_element_structs(loop, capacity)
    in_axes: list[Axis] = [None, *[0] * len(resident_structs), *[1] * len(elements)]
    out_axes: list[Axis] = [None, *[0] * len(loop.node.carry), *[1] * len(loop.sent)]
    replicated_chunk = placement.replicate_function(
        partial(loop.compute_chunk, capacity), loop.ipu, in_axes, out_axes
    )
    donated = tuple(range(1, 1 + len(loop.node.carry)))
    return LoopKernel(
        machine.compilation.add_function(
            replicated_chunk,
            [count, *resident_structs, *elements],
            donate_argnums=donated,
            out_shardings=placement.result_shardings(loop.ipu, out_axes),
        ),
        machine.build_host_to_ipu([count, *elements], loop.ipu),
    )


def list_element_structs(loop: StreamedLoop, capacity: int) -> list[jax.ShapeDtypeStruct]:
    """Returns the shape, dtype and sharding of each infeed leaf of a chunk."""
    avals = loop.machine.program.avals
    leaves = [_chunk_leaf_aval(step, avals[value], capacity) for step, value in loop.taken]
    return [loop.placement.array_struct(leaf, loop.ipu, 1) for leaf in leaves]


def _chunk_leaf_aval(step: ir.StreamIn, aval: jaxpr.Aval, capacity: int) -> jax.ShapeDtypeStruct:
    """Returns the aval of one replica's infeed leaf for as many iterations as a chunk holds."""
    shape = aval.shape if step.count is None else aval.shape[1:]
    return jax.ShapeDtypeStruct((capacity * (step.count or 1), *shape), aval.dtype)


def take_element(leaf: jax.Array, index: Index, count: int | None) -> jax.Array:
    """Takes the element of one iteration, or its `count` stacked elements."""
    if count is None:
        return lax.dynamic_index_in_dim(leaf, index, keepdims=False)
    return lax.dynamic_slice_in_dim(leaf, index * count, count)


def shape_of_sent_element(step: ir.StreamOut, aval: jaxpr.Aval) -> tuple[int, ...]:
    """Returns the shape of one of the elements that an iteration sends."""
    shape = shape_of(aval)
    return shape if step.count is None else shape[1:]


def write_sent_row(
    step: ir.StreamOut, buffer: jax.Array, row: jax.Array, index: Index
) -> jax.Array:
    """Writes what an iteration sends into a buffer; a one-row buffer keeps the last element."""
    rows = row[None] if step.count is None else row
    if buffer.shape[0] == 1:
        return rows[-1:]
    return lax.dynamic_update_slice_in_dim(buffer, rows, index * rows.shape[0], 0)
