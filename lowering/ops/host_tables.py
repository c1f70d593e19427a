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
from lowering.errors import LoweringError
from lowering.jaxpr import (
    TABLE,
    Aval,
    Jaxpr,
    Primitive,
    ShapedArray,
    ad,
    current_user_line,
    sub_jaxprs,
)
from lowering.ops import collectives
from lowering.ops.define import at_front, define, mapped_to_front, no_tangent


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


def lookup(table: Table, indices: Any, handle: Any, site: int) -> Any:
    """The rows of a table at int32 indices, `[*indices.shape, columns]`.

    Args:
      table: on the host.
      indices: of any shape.
      handle: a float32 scalar.
      site: a positive number that no other lookup of the table has.
    """
    replica = collectives.replication_index()
    return lookup_p.bind(indices, handle, replica, table=table, site=site)[0]


def tables_of(jaxpr: Jaxpr) -> dict[Any, None]:
    """Every table that a jaxpr uses, anywhere inside, in order."""
    found: dict[Any, None] = {}
    if TABLE not in jaxpr.effects:
        return found
    for eqn in jaxpr.eqns:
        if eqn.primitive in PRIMITIVES:
            found[eqn.params["table"]] = None
        for inner in sub_jaxprs(eqn):
            found |= tables_of(inner)
    return found


def _rows_of(indices: Any, table: Table) -> Any:
    return ShapedArray((*shape_of(indices), table.columns), table.dtype)


def _lookup_avals(
    indices: Any, handle: Any, replica: Any, *, table: Table, site: int
) -> list[Aval]:
    del handle, replica, site
    # The second result is the site, and tells the update that the lookup has been made. Where vmap
    # makes examples go all ways of a condition, it is another number in those not taken: 0, or
    # the site of the way that was taken.
    return [_rows_of(indices, table), ShapedArray((), np.dtype(np.int32))]


def _update_aval(gradients: Any, indices: Any, *, table: Table) -> Aval:
    del gradients, indices, table
    return ShapedArray((), np.dtype(np.float32))


def _derivative_aval(tangent: Any, indices: Any, *others: Any, table: Table, site: int) -> Aval:
    del tangent, others, site
    return _rows_of(indices, table)


# --- what they do ---------------------------------------------------------------------------------


def _fetched(indices: Any, *others: Any, table: Table, site: int) -> Any:
    del others
    return table.rows(np.asarray(indices), site), np.int32(site)


def _sent(gradients: Any, indices: Any, *, table: Table) -> Any:
    table.send(np.asarray(indices), np.asarray(gradients))
    return np.float32(0)


def _derivative(tangent: Any, indices: Any, taken: Any, *, table: Table, site: int) -> Any:
    del taken, site
    # Rows do not change with the handle, which is a way back and no number to compute with.
    return jnp.zeros((*indices.shape, table.columns), table.dtype) * tangent.astype(table.dtype)


# --- differentiation: only the handle can vary ----------------------------------------------------


def _lookup_jvp(primitive: Primitive, primals: Any, tangents: Any, **params: Any) -> Any:
    rows, taken = primitive.bind(*primals, **params)
    if not params["table"].is_trained:
        return [rows, taken], [no_tangent(rows), no_tangent(taken)]
    change = _derivative_p.bind(tangents[1], primals[0], taken, **params)
    return [rows, taken], [change, no_tangent(taken)]


def _derivative_jvp(primitive: Primitive, primals: Any, tangents: Any, **params: Any) -> Any:
    _, *others = primals
    return primitive.bind(*primals, **params), primitive.bind(tangents[0], *others, **params)


def _derivative_transpose(
    primitive: Primitive,
    cotangent: Any,
    tangent: Any,
    indices: Any,
    taken: Any,
    *,
    table: Table,
    site: int,
) -> Any:
    del primitive
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(tangent.aval), None, None]
    # `taken` has the leading axes of the indices: those of the vmaps that it differs under.
    whole = taken.reshape(*taken.shape, *(1,) * (cotangent.ndim - taken.ndim))
    gradients = jnp.where(whole == site, cotangent, jnp.zeros((), table.dtype))
    return [update_p.bind(gradients, indices, table=table), None, None]


def _update_jvp(primitive: Primitive, primals: Any, tangents: Any, *, table: Table) -> Any:
    del primitive, primals, tangents
    raise LoweringError(
        f"the gradient of host embedding `{table.name}` was itself differentiated: it is on "
        "the host, where the optimizer has applied it",
        where=current_user_line(),
        fix="leave the embedding's handle out of the inner derivative",
    )


# --- vmap: one crossing for all examples ----------------------------------------------------------


def _lookup_vmap(primitive: Primitive, values: Any, dims: Any, **params: Any) -> Any:
    indices, *others = mapped_to_front(values, dims)
    # Handles and replicas are no numbers to compute with: any example's will do.
    own = [x if dim is None else x[0] for x, dim in zip(others, dims[1:], strict=True)]
    rows, taken = primitive.bind(indices, *own, **params)
    in_rows = None if dims[0] is None else 0
    if dims[1] is dims[2] is None:
        return [rows, taken], [in_rows, None]
    # Each example has a lookup of its own, though it may find the same rows: each sends gradients.
    count = next(len(x) for x, dim in zip(others, dims[1:], strict=True) if dim is not None)
    return [rows, jnp.broadcast_to(taken, (count, *taken.shape))], [in_rows, 0]


def _derivative_vmap(primitive: Primitive, values: Any, dims: Any, **params: Any) -> Any:
    tangent, indices, taken = mapped_to_front(values, dims)
    tangent = tangent if dims[0] is None else jnp.sum(tangent, 0)
    if dims[2] is not None and dims[1] is None:
        indices = jnp.broadcast_to(indices, (len(taken), *indices.shape))
    if dims[2] is None and dims[1] is not None:
        taken = taken[None] if taken.ndim else taken
    rows = primitive.bind(tangent, indices, taken, **params)
    return rows, None if dims[1] is dims[2] is None else 0


def _update_vmap(primitive: Primitive, values: Any, dims: Any, *, table: Table) -> Any:
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
