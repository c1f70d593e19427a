"""The primitives of replication, used before the number of replicas is known.

The replication factor is the device's IPUs divided by the shards used, so it is known only once
a whole program has been traced. Until then a collective is a primitive of ours; the pass
`resolve_collectives` turns it into `lax` collectives over the axis `REPLICAS`, or, with one
replica, into nothing. Plain `jax.jit` lowers it as with one replica.

Four collectives suffice: every other one is a sum, scattered or not, a gather or an exchange, with
local work. The index, the count and the promise that a value is equal everywhere exchange nothing.
Groups are consecutive replicas; JAX refuses `axis_index_groups` on a vmapped axis, so a group's
part is selected from the whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.ground import CollectiveError
from lowering.jaxprs import (
    Jaxpr,
    JaxprEqn,
    Primitive,
    ShapedArray,
    sub_jaxprs,
    typed_jax,
    user_line,
    walk_equations,
)
from lowering.ops.define import (
    define_identity_mark,
    define_primitive,
    first_operand,
    jvp_of_linear,
    transpose_of_self_transposed,
)
from lowering.ops.types import Array, Arrays, Results

REPLICAS = "replicas"


def axis_of_replicas(replicas: int) -> tuple[str, int] | None:
    """Returns the axis that a replica's function is traced inside; None with one replica."""
    return (REPLICAS, replicas) if replicas > 1 else None


def cross_replica_sum(x: Array, group: int | None = None) -> Array:
    """Sums `x` over the replicas of its group (all of them for None)."""
    return sum_p.bind(x, group=group)


def reduce_scatter(x: Array, group: int) -> Array:
    """Sums `x`, `[group, ...]`, over a group; row i of the sum is left on the group's replica i."""
    return scatter_p.bind(x, group=group)


def all_gather(x: Array, group: int) -> Array:
    """Gathers and stacks the `x` of all replicas of a group: `[group, *x.shape]`."""
    return gather_p.bind(x, group=group)


def all_to_all(x: Array, group: int) -> Array:
    """Exchanges rows of `x`, `[group, ...]`: row i of the result comes from replica i."""
    return exchange_p.bind(x, group=group)


def replication_index() -> Array:
    """Returns this replica's number, int32."""
    return index_p.bind()


def replica_count() -> Array:
    """Returns the number of replicas, int32."""
    return count_p.bind()


def assume_equal(x: Array) -> Array:
    """Returns `x`, of which the program promises that it is equal on all replicas."""
    return equal_p.bind(x)


def has_sums_in_loops(jaxpr: Jaxpr) -> bool:
    """Returns whether replicas add values up in a loop, or another body, of a jaxpr."""
    sums = sum_p, scatter_p
    bodies = (body for eqn in jaxpr.eqns for body in sub_jaxprs(eqn))
    return any(eqn.primitive in sums for body in bodies for eqn in walk_equations(body))


# --- what one replica does, derivatives and vmap ------------------------------------------------


def _check_group(group: int | None, replicas: int, location: str) -> None:
    if group is not None and replicas % group:
        raise CollectiveError(
            f"a collective over groups of {group} replicas in a program of {replicas}: the group "
            "size must evenly divide the number of replicas",
            where=location,
            fix=f"use a divisor of {replicas}, or give the device another number of IPUs",
        )


def _run_with_one_replica(x: Array, *, group: int | None) -> Array:
    _check_group(group, 1, "")
    return x


def _scatter_aval(x: ShapedArray, *, group: int) -> ShapedArray:
    return ShapedArray(x.shape[1:], x.dtype)


def _scatter_with_one_replica(x: Array, *, group: int) -> Array:
    return _run_with_one_replica(x, group=group)[0]


def _scatter_transpose(_: Primitive, cotangent: Array, _x: Array, *, group: int) -> Arrays:
    return [all_gather(cotangent, group)]


def _scatter_vmap(primitive: Primitive, xs: Arrays, dims: Sequence[int], *, group: int) -> Results:
    return primitive.bind(jnp.moveaxis(xs[0], dims[0], 1), group=group), 0


def _gather_with_one_replica(x: Array, *, group: int) -> Array:
    return jnp.expand_dims(_run_with_one_replica(x, group=group), 0)


def _gather_aval(x: ShapedArray, *, group: int) -> ShapedArray:
    return ShapedArray((group, *x.shape), x.dtype)


def _gather_transpose(_: Primitive, cotangent: Array, _x: Array, *, group: int) -> Arrays:
    total = cross_replica_sum(cotangent, group)
    return [typed_jax.dynamic_index_in_dim(total, replication_index() % group, keepdims=False)]


def _gather_vmap(primitive: Primitive, xs: Arrays, dims: Sequence[int], *, group: int) -> Results:
    return primitive.bind(*xs, group=group), dims[0] + 1


def _exchange_vmap(primitive: Primitive, xs: Arrays, dims: Sequence[int], *, group: int) -> Results:
    return primitive.bind(jnp.moveaxis(xs[0], dims[0], 1), group=group), 1


def _int32_aval() -> ShapedArray:
    return ShapedArray((), jnp.int32.dtype)


sum_p = define_primitive(
    "ipu_cross_replica_sum",
    first_operand,
    _run_with_one_replica,
    jvp=jvp_of_linear,
    transpose=transpose_of_self_transposed,
)
scatter_p = define_primitive(
    "ipu_reduce_scatter",
    _scatter_aval,
    _scatter_with_one_replica,
    jvp=jvp_of_linear,
    transpose=_scatter_transpose,
    vmap=_scatter_vmap,
)
gather_p = define_primitive(
    "ipu_all_gather",
    _gather_aval,
    _gather_with_one_replica,
    jvp=jvp_of_linear,
    transpose=_gather_transpose,
    vmap=_gather_vmap,
)
exchange_p = define_primitive(
    "ipu_all_to_all",
    first_operand,
    _run_with_one_replica,
    jvp=jvp_of_linear,
    transpose=transpose_of_self_transposed,
    vmap=_exchange_vmap,
)
index_p = define_primitive("ipu_replication_index", _int32_aval, lambda: jnp.int32(0))
count_p = define_primitive("ipu_replica_count", _int32_aval, lambda: jnp.int32(1))
equal_p = define_identity_mark("ipu_assume_equal")

COLLECTIVE_PRIMITIVES = (sum_p, scatter_p, gather_p, exchange_p, index_p, count_p, equal_p)


# --- resolution ---------------------------------------------------------------------------------


def resolve_collective(eqn: JaxprEqn, replicas: int) -> Callable[..., Any]:
    """Returns a collective of a program of `replicas`, as a function of its operands.

    The function must be traced inside the axis `REPLICAS` unless there is one replica only.

    Raises:
      CollectiveError: a group size that does not divide the number of replicas.
    """
    group = eqn.params.get("group")
    _check_group(group, replicas, user_line(eqn))
    if replicas == 1:
        return functools.partial(eqn.primitive.impl, **eqn.params)
    if eqn.primitive is index_p:
        return lambda: lax.axis_index(REPLICAS)
    if eqn.primitive is equal_p:
        return first_operand
    if eqn.primitive is count_p:
        return lambda: jnp.int32(replicas)
    return functools.partial(_IN_GROUPS[eqn.primitive], group=group or replicas, replicas=replicas)


def _group_sum(x: Array, group: int, replicas: int) -> Array:
    if group == replicas:
        return typed_jax.psum(x, REPLICAS)
    return jnp.sum(_group_gather(x, group, replicas), axis=0, dtype=x.dtype)


def _group_scatter(x: Array, group: int, replicas: int) -> Array:
    if group == replicas:
        return typed_jax.psum_scatter(x, REPLICAS)
    index_in_group = lax.rem(lax.axis_index(REPLICAS), jnp.int32(group))
    return typed_jax.dynamic_index_in_dim(
        _group_sum(x, group, replicas), index_in_group, keepdims=False
    )


def _group_gather(x: Array, group: int, replicas: int) -> Array:
    all_values = typed_jax.all_gather(x, REPLICAS)
    if group == replicas:
        return all_values
    first_of_group = lax.div(lax.axis_index(REPLICAS), jnp.int32(group)) * group
    return lax.dynamic_slice_in_dim(all_values, first_of_group, group, axis=0)


def _group_exchange(x: Array, group: int, replicas: int) -> Array:
    index = lax.axis_index(REPLICAS)
    if group == replicas:
        # JAX 0.10.2 fails over a vmapped axis along which x is the same: here it never is.
        return typed_jax.all_to_all(lax.select(index >= 0, x, x), REPLICAS, 0, 0)
    all_rows = _group_gather(x, group, replicas)
    index_in_group = lax.rem(index, jnp.int32(group))
    return typed_jax.dynamic_index_in_dim(all_rows, index_in_group, axis=1, keepdims=False)


_IN_GROUPS: dict[Primitive, Callable[..., Array]] = {
    sum_p: _group_sum,
    scatter_p: _group_scatter,
    gather_p: _group_gather,
    exchange_p: _group_exchange,
}
