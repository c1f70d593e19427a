"""Has lookups whose indices are known, and in even steps, be slices."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from jax import lax

from lowering.avals import shape_of
from lowering.equations import fills_with_zeros
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Var,
    in_context_of,
)
from lowering.passes.rewrite import Anywhere, InBodies, Rewriter

_MOST = 1 << 16  # elements of what is computed here


def simplify_gathers(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Rewrites lookups of rows whose indices are the same in each run.

    Before: a `gather` looks up whatever its indices say, and its gradient is a `scatter-add`.
    After:  those of one dimension of a table, whose indices are all in range and follow from the
            literals, counters and constants of their body alone, are slices, if each index is as
            far from the one before it: `table[jnp.arange(8)]`. So are those of one index many
            times. What is added to zeros so is padding. Numbers are the same; what only made the
            indices is left for others to drop.
    """
    lookups = Anywhere(lambda eqn: eqn.primitive in (lax.gather_p, lax.scatter_add_p))
    return InBodies(lookups, _simplified)(closed)


def _simplified(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    eqns, values = closed.jaxpr.eqns, _known(closed)
    zeros = {eqn.outvars[0] for eqn in eqns if fills_with_zeros(eqn)}
    slices = {id(eqn): found for eqn in eqns if (found := _simpler(eqn, values, zeros))}
    if not slices:
        return None
    rewriter = Rewriter(closed.jaxpr)
    for eqn in eqns:
        if id(eqn) not in slices:
            rewriter.keep(eqn)
            continue
        function, operand = slices[id(eqn)]
        with in_context_of(eqn):
            rewriter.trace(eqn.replace(invars=[operand]), function)
    return rewriter.closed(closed.consts)


# --- which values are known -----------------------------------------------------------------------


def _known(closed: ClosedJaxpr) -> dict[Var, np.ndarray]:
    """The whole numbers and booleans that a body makes of nothing but constants."""
    jaxpr = closed.jaxpr
    constants = zip(jaxpr.constvars, closed.consts, strict=True)
    values = {var: np.asarray(value) for var, value in constants if _is_small(var)}
    for eqn in jaxpr.eqns:
        compute = _RULES.get(eqn.primitive.name)
        if compute is None or not _is_small(eqn.outvars[0]):
            continue
        operands = [_value(atom, values) for atom in eqn.invars]
        if all(operand is not None for operand in operands):
            aval: Any = eqn.outvars[0].aval
            values[eqn.outvars[0]] = np.asarray(compute(eqn, *operands)).astype(aval.dtype)
    return values


def _is_small(var: Var) -> bool:
    aval: Any = var.aval
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "biu" and math.prod(aval.shape) <= _MOST


def _value(atom: Atom, values: Mapping[Var, np.ndarray]) -> np.ndarray | None:
    return np.asarray(atom.val) if isinstance(atom, Literal) else values.get(atom)


def _counted(eqn: JaxprEqn) -> np.ndarray:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    along = [extent if i == axis else 1 for i, extent in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[axis]).reshape(along), shape)


def _repeated(eqn: JaxprEqn, operand: np.ndarray) -> np.ndarray:
    shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    extents = dict(zip(axes, operand.shape, strict=True))
    return np.broadcast_to(operand.reshape([extents.get(i, 1) for i in range(len(shape))]), shape)


def _shaped(eqn: JaxprEqn, operand: np.ndarray) -> np.ndarray:
    return operand.reshape(shape_of(eqn.outvars[0].aval))


def _chosen(_: JaxprEqn, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    return np.choose(which.astype(int), cases)


def _of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *operands: function(*operands)


_RULES: dict[str, Callable[..., Any]] = {
    "iota": _counted,
    "broadcast_in_dim": _repeated,
    "reshape": _shaped,
    "squeeze": _shaped,
    "select_n": _chosen,
    "convert_element_type": _of(lambda x: x),
    "add": _of(np.add),
    "sub": _of(np.subtract),
    "mul": _of(np.multiply),
    "max": _of(np.maximum),
    "min": _of(np.minimum),
    "lt": _of(np.less),
}


# --- lookups that are slices ----------------------------------------------------------------------


@dc.dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a table in even steps.

    Attributes:
      table: its extents.
      axis: along which the rows are.
      first: the first index.
      step: from one index to the next, at least 0.
      batch: the extents of the indices.
      offsets: where an array of the rows has the table's other dimensions.
    """

    table: tuple[int, ...]
    axis: int
    first: int
    step: int
    batch: tuple[int, ...]
    offsets: tuple[int, ...]

    @property
    def count(self) -> int:
        """Of the indices."""
        return math.prod(self.batch)

    @property
    def end(self) -> int:
        """One more than the last index."""
        return self.first + self.step * (self.count - 1) + 1

    @property
    def order(self) -> list[int]:
        """Where an array of rows takes its dimensions from: the batch's, then the others."""
        rank = len(self.batch) + len(self.offsets)
        batch, offset = iter(range(rank)), iter(range(len(self.batch), rank))
        return [next(offset if place in self.offsets else batch) for place in range(rank)]

    def taken(self, table: Any) -> Any:
        """What a lookup gives."""
        step = max(1, self.step)
        rows = lax.slice_in_dim(table, self.first, self.end, step, self.axis)
        rows = _moved(rows, self.axis, 0)
        if not self.step:
            rows = lax.broadcast_in_dim(rows, (self.count, *rows.shape[1:]), range(rows.ndim))
        return _transposed(rows.reshape(*self.batch, *rows.shape[1:]), self.order)

    def added(self, rows: Any) -> Any:
        """What an update makes of zeros."""
        rows = _transposed(rows, [int(place) for place in np.argsort(self.order)])
        rows = rows.reshape(self.count, *rows.shape[len(self.batch) :])
        if not self.step:
            rows = lax.expand_dims(lax.reduce_sum(rows, [0]), [0])
        rows = _moved(rows, 0, self.axis)
        padding = [(0, 0, 0)] * rows.ndim
        behind = self.table[self.axis] - self.end
        padding[self.axis] = self.first, behind, max(1, self.step) - 1
        return lax.pad(rows, np.zeros((), rows.dtype), padding)


def _moved(x: Any, source: int, target: int) -> Any:
    order = [axis for axis in range(x.ndim) if axis != source]
    order.insert(target, source)
    return _transposed(x, order)


def _transposed(x: Any, order: Sequence[int]) -> Any:
    return x if list(order) == list(range(x.ndim)) else lax.transpose(x, order)


def _simpler(
    eqn: JaxprEqn, values: Mapping[Var, np.ndarray], zeros: Set[Atom]
) -> tuple[Callable[..., Any], Atom] | None:
    """A function that gives the same as an equation, and its operand; None for one that stays."""
    numbers: Any = eqn.params.get("dimension_numbers")
    if eqn.primitive is lax.gather_p:
        dimensions = numbers.start_index_map, numbers.collapsed_slice_dims, numbers.offset_dims
        rows = _rows(eqn, eqn.outvars[0], dimensions, values)
        return rows and (rows.taken, eqn.invars[0])
    if eqn.primitive is lax.scatter_add_p and eqn.invars[0] in zeros:
        dimensions = (
            numbers.scatter_dims_to_operand_dims,
            numbers.inserted_window_dims,
            numbers.update_window_dims,
        )
        rows = _rows(eqn, eqn.invars[2], dimensions, values)
        return rows and (rows.added, eqn.invars[2])
    return None


def _rows(
    eqn: JaxprEqn,
    looked_up: Atom,
    dimensions: Sequence[tuple[int, ...]],
    values: Mapping[Var, np.ndarray],
) -> _Rows | None:
    """The rows that an equation reads or writes, if they are whole ones in even steps.

    Args:
      eqn: of a table and indices.
      looked_up: the array of rows.
      dimensions: of the table, those that indices are of, and those that rows have not; of the
        array of rows, those of a row.
      values: of the variables that are known.
    """
    indexed, dropped, offsets = dimensions
    indices, table = _value(eqn.invars[1], values), shape_of(eqn.invars[0].aval)
    if indices is None or not indices.size or len(indexed) != 1 or dropped != indexed:
        return None
    (axis,) = indexed
    extents = shape_of(looked_up.aval)
    if eqn.params["dimension_numbers"].operand_batching_dims:
        return None
    if [extents[place] for place in offsets] != [*table[:axis], *table[axis + 1 :]]:
        return None
    flat = indices.reshape(-1).astype(np.int64)
    steps = np.unique(np.diff(flat))
    step = int(steps[0]) if steps.size else 1
    if steps.size > 1 or step < 0 or flat.min() < 0 or flat.max() >= table[axis]:
        return None
    return _Rows(table, axis, int(flat[0]), step, tuple(indices.shape[:-1]), tuple(offsets))
