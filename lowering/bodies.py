"""Which primitives have equations like those around them: calls, control flow, operators."""

from __future__ import annotations

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
}

# Other primitives whose jaxprs are equations like those around: JAX's, and ours by their prefix.
# What else has jaxprs may mean something else by them, such as `pallas_call` the code of a grid.
BODIES = frozenset({
    "scan", "while", "cond", "for", "run_state", "custom_linear_solve", "custom_vmap_call",
    "linear_call", "call", "composite", "compute_on", "eval_jaxpr", "shard_map", "xla_pmap",
    "xla_metadata_call", "fused_call", "custom_jvp_call_jaxpr", "custom_lin", "remat_opt",
    "reduce", "reduce_window", "scatter", "scatter-add", "scatter-sub", "scatter-mul",
    "scatter-min", "scatter-max", "select_and_scatter", "select_and_gather_add",
})  # fmt: skip
OURS = "ipu_"


def has_bodies(primitive: str) -> bool:
    """Whether the jaxprs among the parameters of a primitive are functions of JAX's, or of ours."""
    return primitive in CALLS or primitive in BODIES or primitive.startswith(OURS)
