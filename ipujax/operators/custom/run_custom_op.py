"""Tells JAX how to run users' compiled functions: XLA calls them on CPUs, else the host does.

Importing this module registers the rules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.experimental import io_callback

from ipujax.ground import PyTree
from ipujax.operators.custom.error import custom_op_error
from lowering import jaxpr, ops


def _call_on_cpu(*operands: PyTree, op: ops.UserOp) -> Sequence[PyTree]:
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in op.results]
    function = jax.ffi.ffi_call(op.target, results, has_side_effect=not results)

    def call_ffi(*example: object) -> Sequence[PyTree]:
        return function(*example, attributes=op.attributes)

    return ops.call_for_each_example(call_ffi, operands, op)


def call_through_host(*operands: PyTree, op: ops.UserOp) -> Sequence[PyTree]:
    """Calls a function on the host for other platforms: copies operands there and results back."""
    lead = tuple(count for count, _ in op.examples)
    results = [jax.ShapeDtypeStruct((*lead, *shape), dtype) for shape, dtype in op.results]
    back = functools.partial(run_on_host_cpu, op)
    if results:
        return jax.pure_callback(back, results, *operands)
    return io_callback(back, results, *operands)


def run_on_host_cpu(op: ops.UserOp, *operands: PyTree) -> list[np.ndarray]:
    """Runs a function on the host's CPU, on arrays of any device."""
    with jax.default_device(jax.devices("cpu")[0]):
        results = _jit_for_op(_call_on_cpu, op)(*map(np.asarray, operands))
    return list(map(np.asarray, results))


@functools.lru_cache(maxsize=1024)
def _jit_for_op(function: Callable[..., PyTree], op: ops.UserOp) -> Callable[..., PyTree]:
    return jax.jit(functools.partial(function, op=op))


def _define_rules(primitive: jaxpr.Primitive) -> None:
    def run_now(*operands: PyTree, op: ops.UserOp) -> PyTree:
        try:
            return jax.block_until_ready(_jit_for_op(primitive.bind, op)(*operands))
        except jax.errors.JaxRuntimeError as wrong:
            raise custom_op_error(f"the custom operation `{op.name}`", wrong, [op]) from wrong

    primitive.def_impl(run_now)
    register = jaxpr.register_lowering
    register(primitive, jaxpr.lower_fun(call_through_host, multiple_results=True))
    register(primitive, jaxpr.lower_fun(_call_on_cpu, multiple_results=True), platform="cpu")


for _primitive in (ops.user_op_p, ops.user_callback_p):
    _define_rules(_primitive)
