"""How JAX runs a user's compiled functions: XLA calls them on CPUs; elsewhere the host does.

Importing this module tells JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from ipujax.operators.custom.error import failure
from lowering import jaxpr, ops


def _on_cpu(*operands: Any, op: ops.UserOp) -> Sequence[Any]:
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in op.results]
    function = jax.ffi.ffi_call(op.target, results, has_side_effect=not results)

    def once(*example: Any) -> Sequence[Any]:
        return function(*example, attributes=op.attributes)

    return ops.one_by_one(once, operands, op)


def elsewhere(*operands: Any, op: ops.UserOp) -> Sequence[Any]:
    """Copies operands to the host, and results back."""
    lead = tuple(count for count, _ in op.examples)
    results = [jax.ShapeDtypeStruct((*lead, *shape), dtype) for shape, dtype in op.results]
    back = functools.partial(on_host, op)
    if results:
        return jax.pure_callback(back, results, *operands)
    return io_callback(back, results, *operands)


def on_host(op: ops.UserOp, *operands: Any) -> list[np.ndarray]:
    """Runs a function on the host's CPU, on arrays from wherever."""
    with jax.default_device(jax.devices("cpu")[0]):
        results = _jitted(_on_cpu, op)(*map(np.asarray, operands))
    return list(map(np.asarray, results))


@functools.lru_cache(maxsize=1024)
def _jitted(function: Callable[..., Any], op: ops.UserOp) -> Any:
    return jax.jit(functools.partial(function, op=op))


def _define(primitive: Any) -> None:
    def run_now(*operands: Any, op: ops.UserOp) -> Any:
        try:
            return jax.block_until_ready(_jitted(primitive.bind, op)(*operands))
        except jax.errors.JaxRuntimeError as wrong:
            raise failure(f"the custom operation `{op.name}`", wrong, [op]) from wrong

    primitive.def_impl(run_now)
    register = jaxpr.mlir.register_lowering
    register(primitive, jaxpr.mlir.lower_fun(elsewhere, multiple_results=True))
    register(primitive, jaxpr.mlir.lower_fun(_on_cpu, multiple_results=True), platform="cpu")


for _primitive in (ops.user_op_p, ops.user_callback_p):
    _define(_primitive)
