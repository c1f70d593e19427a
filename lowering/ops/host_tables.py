"""Tables that stay on the host: compiled code looks rows up there and sends their gradients back.

Both are ordered effects, done from within the kernel that they are part of, so each happens as
often as it is written, one after the other. A lookup reads a number besides, its handle: whoever
differentiates with respect to it gets zero, and the backward pass sends the rows' gradients. And
it reads the replica's number, so that replicas that look up the same rows each send gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from lowering.avals import shape_of
from lowering.errors import LoweringError
from lowering.jaxpr import (
    TABLE,
    Jaxpr,
    Primitive,
    ShapedArray,
    ad,
    batching,
    current_user_line,
    mlir,
    sub_jaxprs,
)
from lowering.ops import collectives
from lowering.ops.host_calls import ordered_host_call

lookup_p = Primitive("ipu_host_lookup")
lookup_p.multiple_results = True
update_p = Primitive("ipu_host_update")
# The derivative of a lookup: nothing but the way back to the update.
_derivative_p = Primitive("ipu_host_lookup_derivative")
PRIMITIVES = (lookup_p, update_p)


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


@lookup_p.def_effectful_abstract_eval
def _lookup_aval(indices: Any, handle: Any, replica: Any, *, table: Table, site: int) -> Any:
    del handle, replica, site
    # The second result is the site, and tells the update that the lookup has been made. Where vmap
    # makes examples go all ways of a condition, it is another number in those not taken: 0, or
    # the site of the way that was taken.
    taken = ShapedArray((), np.dtype(np.int32))
    return [_rows_of(indices, table), taken], {TABLE}


@update_p.def_effectful_abstract_eval
def _update_aval(gradients: Any, indices: Any, *, table: Table) -> Any:
    del gradients, indices, table
    return ShapedArray((), np.dtype(np.float32)), {TABLE}


@_derivative_p.def_abstract_eval
def _derivative_aval(tangent: Any, indices: Any, taken: Any, *, table: Table, site: int) -> Any:
    del tangent, taken, site
    return _rows_of(indices, table)


# --- on the host ----------------------------------------------------------------------------------


@lookup_p.def_impl
def _lookup_now(*operands: Any, **params: Any) -> list[Any]:
    return list(map(jnp.asarray, _fetched(*operands, **params)))


@update_p.def_impl
def _update_now(gradients: Any, indices: Any, *, table: Table) -> Any:
    return jnp.asarray(*_sent(gradients, indices, table=table))


def _derivative(tangent: Any, indices: Any, taken: Any, *, table: Table, site: int) -> Any:
    del taken, site
    # Rows do not change with the handle, which is a way back and no number to compute with.
    return jnp.zeros((*indices.shape, table.columns), table.dtype) * tangent.astype(table.dtype)


def _fetched(indices: Any, handle: Any, replica: Any, *, table: Table, site: int) -> Any:
    del handle, replica
    return table.rows(np.asarray(indices), site), np.int32(site)


def _sent(gradients: Any, indices: Any, *, table: Table) -> Any:
    table.send(np.asarray(indices), np.asarray(gradients))
    return (np.float32(0),)


mlir.register_lowering(lookup_p, ordered_host_call(TABLE, _fetched), cacheable=False)
mlir.register_lowering(update_p, ordered_host_call(TABLE, _sent), cacheable=False)
_derivative_p.def_impl(_derivative)
mlir.register_lowering(_derivative_p, mlir.lower_fun(_derivative, multiple_results=False))


# --- differentiation ------------------------------------------------------------------------------


def _lookup_jvp(primals: Any, tangents: Any, *, table: Table, site: int) -> Any:
    rows, taken = lookup_p.bind(*primals, table=table, site=site)
    none = ad.Zero(jax.typeof(taken).to_tangent_aval())
    if isinstance(tangents[1], ad.Zero) or not table.is_trained:
        return [rows, taken], [ad.Zero(jax.typeof(rows).to_tangent_aval()), none]
    change = _derivative_p.bind(tangents[1], primals[0], taken, table=table, site=site)
    return [rows, taken], [change, none]


def _derivative_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    rows = _derivative_p.bind(*primals, **params)
    if isinstance(tangents[0], ad.Zero):
        return rows, ad.Zero(jax.typeof(rows).to_tangent_aval())
    return rows, _derivative_p.bind(tangents[0], *primals[1:], **params)


def _derivative_transpose(
    cotangent: Any, tangent: Any, indices: Any, taken: Any, *, table: Table, site: int
) -> Any:
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(tangent.aval), None, None]
    # `taken` has the leading axes of the indices: those of the vmaps that it differs under.
    whole = taken.reshape(*taken.shape, *(1,) * (cotangent.ndim - taken.ndim))
    gradients = jnp.where(whole == site, cotangent, jnp.zeros((), table.dtype))
    return [update_p.bind(gradients, indices, table=table), None, None]


def _update_jvp(primals: Any, tangents: Any, *, table: Table) -> Any:
    if not isinstance(tangents[0], ad.Zero):
        raise LoweringError(
            f"the gradient of host embedding `{table.name}` was itself differentiated: it is on "
            "the host, where the optimizer has applied it",
            where=current_user_line(),
            fix="leave the embedding's handle out of the inner derivative",
        )
    done = update_p.bind(*primals, table=table)
    return done, ad.Zero(jax.typeof(done).to_tangent_aval())


ad.primitive_jvps[lookup_p] = _lookup_jvp
ad.primitive_jvps[_derivative_p] = _derivative_jvp
ad.primitive_transposes[_derivative_p] = _derivative_transpose
ad.primitive_jvps[update_p] = _update_jvp


# --- vmap: one crossing for all examples ----------------------------------------------------------


def _lookup_vmap(values: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    indices, *others = _leading(values, dims)
    # Handles and replicas are no numbers to compute with: any example's will do.
    own = [x if dim is None else x[0] for x, dim in zip(others, dims[1:], strict=True)]
    rows, taken = lookup_p.bind(indices, *own, **params)
    in_rows = None if dims[0] is None else 0
    if dims[1] is dims[2] is None:
        return [rows, taken], [in_rows, None]
    # Each example has a lookup of its own, though it may find the same rows: each sends gradients.
    count = next(len(x) for x, dim in zip(others, dims[1:], strict=True) if dim is not None)
    return [rows, jnp.broadcast_to(taken, (count, *taken.shape))], [in_rows, 0]


def _derivative_vmap(values: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    tangent, indices, taken = _leading(values, dims)
    tangent = tangent if dims[0] is None else jnp.sum(tangent, 0)
    if dims[2] is not None and dims[1] is None:
        indices = jnp.broadcast_to(indices, (len(taken), *indices.shape))
    if dims[2] is None and dims[1] is not None:
        taken = taken[None] if taken.ndim else taken
    rows = _derivative_p.bind(tangent, indices, taken, **params)
    return rows, None if dims[1] is dims[2] is None else 0


def _update_vmap(values: Sequence[Any], dims: Sequence[Any], *, table: Table) -> Any:
    gradients, indices = _leading(values, dims)
    if dims[1] is None:
        indices = jnp.broadcast_to(indices, gradients.shape[:-1])
    if dims[0] is None:
        gradients = jnp.broadcast_to(gradients, (*indices.shape, table.columns))
    return update_p.bind(gradients, indices, table=table), None


def _leading(values: Sequence[Any], dims: Sequence[Any]) -> list[Any]:
    pairs = zip(values, dims, strict=True)
    return [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs]


batching.primitive_batchers[lookup_p] = _lookup_vmap
batching.primitive_batchers[_derivative_p] = _derivative_vmap
batching.primitive_batchers[update_p] = _update_vmap
