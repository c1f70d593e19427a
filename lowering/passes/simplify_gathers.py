"""The replacement of lookups with known indices, in even steps, by slices."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from jax import lax

from lowering.jaxprs import (
    Atom,
    BodyRewriter,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    Literal,
    Var,
    broadcasts_zero,
    shape_of,
    typed_jax,
    use_configuration_of,
)

_MOST = 1 << 16  # the most elements of a value that is computed here


def simplify_gathers(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Rewrites lookups of rows whose indices are the same in each run.

    Before: a `gather` looks up whatever its indices say, and its gradient is a `scatter-add`.
    After:  those of one dimension of a table, whose indices are all in range and follow from the
            literals, counters and constants of their body alone, are slices, if each index is as
            far from the one before it: `table[jnp.arange(8)]`. So are those of one index many
            times. What is added to zeros so is padding. Numbers are the same; what only made the
            indices is left for others to drop.
    """
    lookups = EquationFinder(lambda eqn: eqn.primitive in (lax.gather_p, lax.scatter_add_p))
    return BodyRewriter(lookups, _simplify_gathers_of_body)(closed)


def _simplify_gathers_of_body(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    eqns, values = closed.jaxpr.eqns, _compute_known_integers(closed)
    zeros = {eqn.outvars[0] for eqn in eqns if broadcasts_zero(eqn)}
    slices = {
        id(eqn): slice_and_operand
        for eqn in eqns
        if (slice_and_operand := _simplify_gather(eqn, values, zeros))
    }
    if not slices:
        return None
    rewriter = EquationRewriter(closed.jaxpr)
    for eqn in eqns:
        if id(eqn) not in slices:
            rewriter.keep_equation(eqn)
            continue
        function, operand = slices[id(eqn)]
        with use_configuration_of(eqn):
            rewriter.replace_by_function(eqn.replace(invars=[operand]), function)
    return rewriter.build_rewritten_jaxpr(closed.consts)


# --- which values are known -----------------------------------------------------------------------


def _compute_known_integers(closed: ClosedJaxpr) -> dict[Var, np.ndarray]:
    """Returns the integers and booleans that a body makes of constants alone."""
    jaxpr = closed.jaxpr
    constants = zip(jaxpr.constvars, closed.consts, strict=True)
    values = {var: np.asarray(value) for var, value in constants if _is_small_integer_array(var)}
    for eqn in jaxpr.eqns:
        compute = _RULES.get(eqn.primitive.name)
        if compute is None or not _is_small_integer_array(eqn.outvars[0]):
            continue
        operands = [_value_if_known(atom, values) for atom in eqn.invars]
        if all(operand is not None for operand in operands):
            aval: Any = eqn.outvars[0].aval
            values[eqn.outvars[0]] = np.asarray(compute(eqn, *operands)).astype(aval.dtype)
    return values


def _is_small_integer_array(var: Var) -> bool:
    aval: Any = var.aval
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "biu" and math.prod(aval.shape) <= _MOST


def _value_if_known(atom: Atom, values: Mapping[Var, np.ndarray]) -> np.ndarray | None:
    return np.asarray(atom.val) if isinstance(atom, Literal) else values.get(atom)


def _compute_iota(eqn: JaxprEqn) -> np.ndarray:
    shape: tuple[int, ...] = eqn.params["shape"]
    axis: int = eqn.params["dimension"]
    along = [extent if i == axis else 1 for i, extent in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[axis]).reshape(along), shape)


def _compute_broadcast(eqn: JaxprEqn, operand: np.ndarray) -> np.ndarray:
    shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    extents = dict(zip(axes, operand.shape, strict=True))
    return np.broadcast_to(operand.reshape([extents.get(i, 1) for i in range(len(shape))]), shape)


def _compute_reshape(eqn: JaxprEqn, operand: np.ndarray) -> np.ndarray:
    return operand.reshape(shape_of(eqn.outvars[0].aval))


def _compute_select(_: JaxprEqn, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    return np.choose(which.astype(int), cases)


def _first_operand(operand: np.ndarray) -> np.ndarray:
    return operand


def _ignore_equation(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(_: JaxprEqn, *operands: np.ndarray) -> Any:
        return function(*operands)

    return compute


_RULES: dict[str, Callable[..., Any]] = {
    "iota": _compute_iota,
    "broadcast_in_dim": _compute_broadcast,
    "reshape": _compute_reshape,
    "squeeze": _compute_reshape,
    "select_n": _compute_select,
    "convert_element_type": _ignore_equation(_first_operand),
    "add": _ignore_equation(np.add),
    "sub": _ignore_equation(np.subtract),
    "mul": _ignore_equation(np.multiply),
    "max": _ignore_equation(np.maximum),
    "min": _ignore_equation(np.minimum),
    "lt": _ignore_equation(np.less),
}


# --- lookups that are slices ----------------------------------------------------------------------


@dc.dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a table in even steps.

    Attributes:
      table: the extents of the table.
      axis: the axis along which the rows are.
      first: the first index.
      step: the distance from one index to the next, at least 0.
      batch: the extents of the indices.
      offsets: the axes of the table's other dimensions in an array of the rows.
    """

    table: tuple[int, ...]
    axis: int
    first: int
    step: int
    batch: tuple[int, ...]
    offsets: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """The number of indices."""
        return math.prod(self.batch)

    @property
    def end_of_rows(self) -> int:
        """The last index plus one."""
        return self.first + self.step * (self.num_rows - 1) + 1

    @property
    def source_axes(self) -> list[int]:
        """The source axis of each dimension of the rows, from the batch's and then the others."""
        rank = len(self.batch) + len(self.offsets)
        batch, offset = iter(range(rank)), iter(range(len(self.batch), rank))
        return [next(offset if position in self.offsets else batch) for position in range(rank)]

    def slice_rows_from(self, table: Any) -> Any:
        """Returns the rows of a table, as the lookup does."""
        step = max(1, self.step)
        rows = lax.slice_in_dim(table, self.first, self.end_of_rows, step, self.axis)
        rows = _move_axis(rows, self.axis, 0)
        if not self.step:
            rows = typed_jax.broadcast_in_dim(
                rows, (self.num_rows, *rows.shape[1:]), range(rows.ndim)
            )
        return _transpose_if_needed(rows.reshape(*self.batch, *rows.shape[1:]), self.source_axes)

    def pad_rows_with_zeros(self, rows: Any) -> Any:
        """Returns the rows added to a table of zeros, as the update does."""
        rows = _transpose_if_needed(
            rows, [int(position) for position in np.argsort(self.source_axes)]
        )
        rows = rows.reshape(self.num_rows, *rows.shape[len(self.batch) :])
        if not self.step:
            rows = lax.expand_dims(typed_jax.reduce_sum(rows, [0]), [0])
        rows = _move_axis(rows, 0, self.axis)
        padding = [(0, 0, 0)] * rows.ndim
        num_rows_behind = self.table[self.axis] - self.end_of_rows
        padding[self.axis] = self.first, num_rows_behind, max(1, self.step) - 1
        return lax.pad(rows, np.zeros((), rows.dtype), padding)


def _move_axis(x: Any, source: int, target: int) -> Any:
    order = [axis for axis in range(x.ndim) if axis != source]
    order.insert(target, source)
    return _transpose_if_needed(x, order)


def _transpose_if_needed(x: Any, order: Sequence[int]) -> Any:
    return x if list(order) == list(range(x.ndim)) else lax.transpose(x, order)


def _simplify_gather(
    eqn: JaxprEqn, values: Mapping[Var, np.ndarray], zeros: Set[Atom]
) -> tuple[Callable[..., Any], Atom] | None:
    """Returns a simpler function for an equation, and its operand; None if there is none."""
    numbers: Any = eqn.params.get("dimension_numbers")
    if eqn.primitive is lax.gather_p:
        dimensions = numbers.start_index_map, numbers.collapsed_slice_dims, numbers.offset_dims
        rows = _match_even_rows(eqn, eqn.outvars[0], dimensions, values)
        return rows and (rows.slice_rows_from, eqn.invars[0])
    if eqn.primitive is lax.scatter_add_p and eqn.invars[0] in zeros:
        dimensions = (
            numbers.scatter_dims_to_operand_dims,
            numbers.inserted_window_dims,
            numbers.update_window_dims,
        )
        rows = _match_even_rows(eqn, eqn.invars[2], dimensions, values)
        return rows and (rows.pad_rows_with_zeros, eqn.invars[2])
    return None


def _match_even_rows(
    eqn: JaxprEqn,
    rows_array: Atom,
    dimensions: Sequence[tuple[int, ...]],
    values: Mapping[Var, np.ndarray],
) -> _Rows | None:
    """Returns the rows that an equation reads or writes, if they are in even steps.

    Args:
      eqn: an equation with a table and indices.
      rows_array: the array of rows.
      dimensions: the dimensions of the table that are indexed, those that rows do not have, and the
        dimensions of a row in the array of rows.
      values: the values of the variables that are known.
    """
    indexed, dropped, offsets = dimensions
    indices, table = _value_if_known(eqn.invars[1], values), shape_of(eqn.invars[0].aval)
    if indices is None or not indices.size or len(indexed) != 1 or dropped != indexed:
        return None
    (axis,) = indexed
    extents = shape_of(rows_array.aval)
    if eqn.params["dimension_numbers"].operand_batching_dims:
        return None
    if [extents[axis_of_rows] for axis_of_rows in offsets] != [*table[:axis], *table[axis + 1 :]]:
        return None
    flat = indices.reshape(-1).astype(np.int64)
    steps = np.unique(np.diff(flat))
    step = int(steps[0]) if steps.size else 1
    if steps.size > 1 or step < 0 or flat.min() < 0 or flat.max() >= table[axis]:
        return None
    return _Rows(table, axis, int(flat[0]), step, tuple(indices.shape[:-1]), tuple(offsets))
