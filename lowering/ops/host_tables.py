"""The primitives of tables on the host: lookups of rows, and updates by their gradients.

Both are ordered effects, done from within the kernel that they are part of, so each happens as
often as it is written, one after the other. A lookup reads a number besides, its handle: whoever
differentiates with respect to it gets zero, and the backward pass sends the rows' gradients. And
it reads the replica's number, so that replicas that look up the same rows each send gradients.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from lowering.ground import LoweringError
from lowering.jaxprs import (
    TABLE_EFFECT,
    Aval,
    Jaxpr,
    Primitive,
    ShapedArray,
    ad,
    current_user_line,
    shape_of,
    typed_jax,
    walk_equations,
)
from lowering.ops import collective_primitives
from lowering.ops.define import (
    define_primitive,
    move_examples_to_front,
    move_mapped_axes_to_front,
    zero_tangent,
)
from lowering.ops.types import Array, Arrays, Dims, Results, Tangents


class Table(Protocol):
    """A table on the host, as the compiler knows it; tables are compared by identity."""

    @property
    def name(self) -> str:
        """The name of the table, for messages."""
        ...

    @property
    def columns(self) -> int:
        """The length of a row."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements, and of the gradients that come back."""
        ...

    @property
    def is_trained(self) -> bool:
        """A flag: the table takes gradients."""
        ...

    def rows(self, indices: np.ndarray, site: int) -> np.ndarray:
        """Returns the rows at indices of any shape, `[*indices.shape, columns]`, for one lookup."""
        ...

    def send(self, indices: np.ndarray, gradients: np.ndarray) -> None:
        """Takes gradients of rows, `[*indices.shape, columns]`."""
        ...


def look_up_rows(table: Table, indices: Array, handle: Array, site: int) -> Array:
    """Looks up the rows of a table at int32 indices, `[*indices.shape, columns]`.

    Args:
      table: a table on the host.
      indices: indices of any shape.
      handle: a float32 scalar.
      site: a positive number that no other lookup of the table has.
    """
    replica = collective_primitives.replication_index()
    return lookup_p.bind(indices, handle, replica, table=table, site=site)[0]


def tables_of(jaxpr: Jaxpr) -> dict[Table, None]:
    """Returns every table that a jaxpr uses, at any depth, in order."""
    eqns = walk_equations(jaxpr, _uses_tables) if _uses_tables(jaxpr) else ()
    return dict.fromkeys(eqn.params["table"] for eqn in eqns if eqn.primitive in PRIMITIVES)


def _uses_tables(jaxpr: Jaxpr) -> bool:
    return TABLE_EFFECT in jaxpr.effects


def _aval_of_rows(indices: Aval, table: Table) -> ShapedArray:
    return ShapedArray((*shape_of(indices), table.columns), table.dtype)


def _lookup_avals(indices: Aval, *_: Aval, table: Table, **params: object) -> list[Aval]:
    # The second result is the site, and tells the update that the lookup has been made. Where vmap
    # makes examples go all ways of a condition, it is another number in those not taken: 0, or
    # the site of the way that was taken.
    return [_aval_of_rows(indices, table), ShapedArray((), np.dtype(np.int32))]


def _table_update_aval(*_: Aval, **params: object) -> Aval:
    return ShapedArray((), np.dtype(np.float32))


def _lookup_derivative_aval(
    _: Aval, indices: Aval, *unused_avals: Aval, table: Table, site: int
) -> Aval:
    return _aval_of_rows(indices, table)


# --- what the primitives do ---------------------------------------------------------------------


def _fetch_rows(indices: Array, *_: Array, table: Table, site: int) -> tuple[np.ndarray, np.int32]:
    return table.rows(np.asarray(indices), site), np.int32(site)


def _send_gradients(gradients: Array, indices: Array, *, table: Table) -> np.float32:
    table.send(np.asarray(indices), np.asarray(gradients))
    return np.float32(0)


def _zero_derivative_of_lookup(
    tangent: Array, indices: Array, _: Array, *, table: Table, site: int
) -> Array:
    # Rows do not change with the handle, whose only use is the way back of gradients.
    return typed_jax.zeros((*indices.shape, table.columns), table.dtype) * tangent.astype(
        table.dtype
    )


# --- differentiation: only the handle can vary ----------------------------------------------------


def _lookup_jvp(primitive: Primitive, xs: Arrays, tangents: Tangents, **params: Any) -> Results:
    rows, site_output = primitive.bind(*xs, **params)
    if not params["table"].is_trained:
        return [rows, site_output], [zero_tangent(rows), zero_tangent(site_output)]
    change = _derivative_p.bind(tangents[1], xs[0], site_output, **params)
    return [rows, site_output], [change, zero_tangent(site_output)]


def _lookup_derivative_jvp(
    primitive: Primitive, xs: Arrays, tangents: Tangents, **params: Any
) -> Results:
    return primitive.bind(*xs, **params), primitive.bind(tangents[0], *xs[1:], **params)


def _lookup_derivative_transpose(
    _: Primitive, cotangent: Array | ad.Zero, *operands: Any, table: Table, site: int
) -> list[Array | ad.Zero | None]:
    tangent, indices, site_output = operands
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(tangent.aval), None, None]
    # The site has the leading axes of the indices: those of the vmaps that it differs under.
    site_of_element = site_output.reshape(
        *site_output.shape, *(1,) * (cotangent.ndim - site_output.ndim)
    )
    gradients = jnp.where(site_of_element == site, cotangent, typed_jax.zeros((), table.dtype))
    return [update_p.bind(gradients, indices, table=table), None, None]


def _table_update_jvp(*_: object, table: Table) -> Results:
    raise LoweringError(
        f"the gradient of host embedding `{table.name}` was itself differentiated: it is on "
        "the host, where the optimizer has applied it",
        where=current_user_line(),
        fix="leave the embedding's handle out of the inner derivative",
    )


# --- vmap: one crossing for all examples ----------------------------------------------------------


def _lookup_vmap(primitive: Primitive, values: Arrays, dims: Dims, **params: object) -> Results:
    indices, *handle_and_replica = move_mapped_axes_to_front(values, dims)
    # Handles and replicas are no numbers to compute with: any example's will do.
    shared = [
        x if dim is None else x[0] for x, dim in zip(handle_and_replica, dims[1:], strict=True)
    ]
    rows, site_output = primitive.bind(indices, *shared, **params)
    in_rows = None if dims[0] is None else 0
    if dims[1] is dims[2] is None:
        return [rows, site_output], [in_rows, None]
    # Each example has a lookup of its own, though it may find the same rows: each sends gradients.
    count = next(
        len(x) for x, dim in zip(handle_and_replica, dims[1:], strict=True) if dim is not None
    )
    return [rows, jnp.broadcast_to(site_output, (count, *site_output.shape))], [in_rows, 0]


def _lookup_derivative_vmap(
    primitive: Primitive, values: Arrays, dims: Dims, **params: object
) -> Results:
    tangent, indices, site_output = move_mapped_axes_to_front(values, dims)
    tangent = tangent if dims[0] is None else jnp.sum(tangent, 0)
    if dims[2] is not None and dims[1] is None:
        indices = jnp.broadcast_to(indices, (len(site_output), *indices.shape))
    if dims[2] is None and dims[1] is not None:
        site_output = site_output[None] if site_output.ndim else site_output
    rows = primitive.bind(tangent, indices, site_output, **params)
    return rows, None if dims[1] is dims[2] is None else 0


def _table_update_vmap(
    primitive: Primitive, values: Arrays, dims: Dims, *, table: Table
) -> Results:
    return primitive.bind(*move_examples_to_front(values, dims), table=table), None


lookup_p = define_primitive(
    "ipu_host_lookup",
    _lookup_avals,
    _fetch_rows,
    has_several_results=True,
    on_host=TABLE_EFFECT,
    jvp=_lookup_jvp,
    vmap=_lookup_vmap,
)
update_p = define_primitive(
    "ipu_host_update",
    _table_update_aval,
    _send_gradients,
    on_host=TABLE_EFFECT,
    jvp=_table_update_jvp,
    vmap=_table_update_vmap,
)
# The derivative of a lookup: nothing but the way back to the update.
_derivative_p = define_primitive(
    "ipu_host_lookup_derivative",
    _lookup_derivative_aval,
    _zero_derivative_of_lookup,
    jvp=_lookup_derivative_jvp,
    transpose=_lookup_derivative_transpose,
    vmap=_lookup_derivative_vmap,
)
PRIMITIVES = (lookup_p, update_p)
