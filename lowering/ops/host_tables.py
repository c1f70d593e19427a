"""Tables that stay on the host: compiled code looks rows up there and sends their gradients back.

Both are ordered effects, done from within the kernel that they are part of, so each happens as
often as it is written, one after the other. A lookup reads a number besides, its handle: whoever
differentiates with respect to it gets zero, and the backward pass sends the rows' gradients. And
it reads the replica's number, so that replicas that look up the same rows each send gradients.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from lowering.avals import shape_of
from lowering.equations import walk
from lowering.errors import LoweringError
from lowering.jaxpr import TABLE, Aval, Jaxpr, Primitive, ShapedArray, ad, current_user_line
from lowering.ops import collectives
from lowering.ops.define import at_front, define, mapped_to_front, no_tangent
from lowering.ops.types import Array, Arrays, Dims, Results, Tangents


class Table(Protocol):
    """What is known here of a table; it is compared by identity."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def columns(self) -> int:
        """The length of a row."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements, also of the gradients that come back."""
        ...

    @property
    def is_trained(self) -> bool:
        """Whether it takes gradients."""
        ...

    def rows(self, indices: np.ndarray, site: int) -> np.ndarray:
        """The rows at indices of any shape, `[*indices.shape, columns]`, for one lookup."""
        ...

    def send(self, indices: np.ndarray, gradients: np.ndarray) -> None:
        """Takes gradients of rows, `[*indices.shape, columns]`."""
        ...


def lookup(table: Table, indices: Array, handle: Array, site: int) -> Array:
    """The rows of a table at int32 indices, `[*indices.shape, columns]`.

    Args:
      table: on the host.
      indices: of any shape.
      handle: a float32 scalar.
      site: a positive number that no other lookup of the table has.
    """
    replica = collectives.replication_index()
    return lookup_p.bind(indices, handle, replica, table=table, site=site)[0]


def tables_of(jaxpr: Jaxpr) -> dict[Table, None]:
    """Every table that a jaxpr uses, anywhere inside, in order."""
    eqns = walk(jaxpr, _uses_tables) if _uses_tables(jaxpr) else ()
    return dict.fromkeys(eqn.params["table"] for eqn in eqns if eqn.primitive in PRIMITIVES)


def _uses_tables(jaxpr: Jaxpr) -> bool:
    return TABLE in jaxpr.effects


def _rows_of(indices: Aval, table: Table) -> ShapedArray:
    return ShapedArray((*shape_of(indices), table.columns), table.dtype)


def _lookup_avals(indices: Aval, *_: Aval, table: Table, **params: object) -> list[Aval]:
    # The second result is the site, and tells the update that the lookup has been made. Where vmap
    # makes examples go all ways of a condition, it is another number in those not taken: 0, or
    # the site of the way that was taken.
    return [_rows_of(indices, table), ShapedArray((), np.dtype(np.int32))]


def _update_aval(*_: Aval, **params: object) -> Aval:
    return ShapedArray((), np.dtype(np.float32))


def _derivative_aval(_: Aval, indices: Aval, *others: Aval, table: Table, site: int) -> Aval:
    return _rows_of(indices, table)


# --- what they do ---------------------------------------------------------------------------------


def _fetched(indices: Array, *_: Array, table: Table, site: int) -> tuple[np.ndarray, np.int32]:
    return table.rows(np.asarray(indices), site), np.int32(site)


def _sent(gradients: Array, indices: Array, *, table: Table) -> np.float32:
    table.send(np.asarray(indices), np.asarray(gradients))
    return np.float32(0)


def _derivative(tangent: Array, indices: Array, _: Array, *, table: Table, site: int) -> Array:
    # Rows do not change with the handle, which is a way back and no number to compute with.
    return jnp.zeros((*indices.shape, table.columns), table.dtype) * tangent.astype(table.dtype)


# --- differentiation: only the handle can vary ----------------------------------------------------


def _lookup_jvp(primitive: Primitive, xs: Arrays, tangents: Tangents, **params: Any) -> Results:
    rows, taken = primitive.bind(*xs, **params)
    if not params["table"].is_trained:
        return [rows, taken], [no_tangent(rows), no_tangent(taken)]
    change = _derivative_p.bind(tangents[1], xs[0], taken, **params)
    return [rows, taken], [change, no_tangent(taken)]


def _derivative_jvp(primitive: Primitive, xs: Arrays, tangents: Tangents, **params: Any) -> Results:
    return primitive.bind(*xs, **params), primitive.bind(tangents[0], *xs[1:], **params)


def _derivative_transpose(
    _: Primitive, cotangent: Array | ad.Zero, *operands: Any, table: Table, site: int
) -> list[Array | ad.Zero | None]:
    tangent, indices, taken = operands
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(tangent.aval), None, None]
    # `taken` has the leading axes of the indices: those of the vmaps that it differs under.
    whole = taken.reshape(*taken.shape, *(1,) * (cotangent.ndim - taken.ndim))
    gradients = jnp.where(whole == site, cotangent, jnp.zeros((), table.dtype))
    return [update_p.bind(gradients, indices, table=table), None, None]


def _update_jvp(*_: object, table: Table) -> Results:
    raise LoweringError(
        f"the gradient of host embedding `{table.name}` was itself differentiated: it is on "
        "the host, where the optimizer has applied it",
        where=current_user_line(),
        fix="leave the embedding's handle out of the inner derivative",
    )


# --- vmap: one crossing for all examples ----------------------------------------------------------


def _lookup_vmap(primitive: Primitive, values: Arrays, dims: Dims, **params: object) -> Results:
    indices, *others = mapped_to_front(values, dims)
    # Handles and replicas are no numbers to compute with: any example's will do.
    shared = [x if dim is None else x[0] for x, dim in zip(others, dims[1:], strict=True)]
    rows, taken = primitive.bind(indices, *shared, **params)
    in_rows = None if dims[0] is None else 0
    if dims[1] is dims[2] is None:
        return [rows, taken], [in_rows, None]
    # Each example has a lookup of its own, though it may find the same rows: each sends gradients.
    count = next(len(x) for x, dim in zip(others, dims[1:], strict=True) if dim is not None)
    return [rows, jnp.broadcast_to(taken, (count, *taken.shape))], [in_rows, 0]


def _derivative_vmap(primitive: Primitive, values: Arrays, dims: Dims, **params: object) -> Results:
    tangent, indices, taken = mapped_to_front(values, dims)
    tangent = tangent if dims[0] is None else jnp.sum(tangent, 0)
    if dims[2] is not None and dims[1] is None:
        indices = jnp.broadcast_to(indices, (len(taken), *indices.shape))
    if dims[2] is None and dims[1] is not None:
        taken = taken[None] if taken.ndim else taken
    rows = primitive.bind(tangent, indices, taken, **params)
    return rows, None if dims[1] is dims[2] is None else 0


def _update_vmap(primitive: Primitive, values: Arrays, dims: Dims, *, table: Table) -> Results:
    return primitive.bind(*at_front(values, dims), table=table), None


lookup_p = define(
    "ipu_host_lookup",
    _lookup_avals,
    _fetched,
    several=True,
    on_host=TABLE,
    jvp=_lookup_jvp,
    vmap=_lookup_vmap,
)
update_p = define(
    "ipu_host_update", _update_aval, _sent, on_host=TABLE, jvp=_update_jvp, vmap=_update_vmap
)
# The derivative of a lookup: nothing but the way back to the update.
_derivative_p = define(
    "ipu_host_lookup_derivative",
    _derivative_aval,
    _derivative,
    jvp=_derivative_jvp,
    transpose=_derivative_transpose,
    vmap=_derivative_vmap,
)
PRIMITIVES = (lookup_p, update_p)
