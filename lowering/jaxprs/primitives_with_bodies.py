"""The primitives whose sub-jaxprs are ordinary equations: calls, control flow, operators."""

from __future__ import annotations

import functools

# Calls: primitives whose one sub-jaxpr runs exactly once, with the equation's own operands. The
# value is the parameter that holds it.
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "ipu_task": "body",
    "ipu_linear_map": "body",
}

# Other primitives whose jaxprs hold ordinary equations: JAX's, and ours by their prefix. Any other
# primitive may mean something else by a jaxpr, such as `pallas_call` the code of a grid.
BODIES = frozenset({
    "scan", "while", "cond", "for", "run_state", "custom_linear_solve", "custom_vmap_call",
    "linear_call", "call", "composite", "compute_on", "eval_jaxpr", "shard_map", "xla_pmap",
    "xla_metadata_call", "fused_call", "custom_jvp_call_jaxpr", "custom_lin", "remat_opt",
    "reduce", "reduce_window", "scatter", "scatter-add", "scatter-sub", "scatter-mul",
    "scatter-min", "scatter-max", "select_and_scatter", "select_and_gather_add",
})  # fmt: skip
OWN_PREFIX = "ipu_"


@functools.cache
def has_bodies(primitive: str) -> bool:
    """Returns whether the jaxprs in a primitive's parameters are functions of JAX's or ours."""
    return primitive in CALLS or primitive in BODIES or primitive.startswith(OWN_PREFIX)
