"""Modules of `flax.nnx` and Equinox, recognised without importing these libraries."""

from __future__ import annotations


def suggest_split(tree: object, *, differentiated: bool = False) -> str | None:
    """Returns how a user splits a module into its arrays and the rest; None for what is no module.

    Args:
      tree: an argument of a user's function.
      differentiated: whether the function is differentiated with respect to it.
    """
    if is_nnx_module(tree) and differentiated:
        return (
            "split the module: `graph, params, rest = nnx.split(module, nnx.Param, ...)`; pass "
            "`params` first, `rest` in an argument that batch_argnums does not name, and inside "
            "the function call `nnx.merge(graph, params, rest)`"
        )
    if is_nnx_module(tree):
        return (
            "split the module: `graph, arrays = nnx.split(module)`; pass `arrays`, and inside the "
            "function call `nnx.merge(graph, arrays)`"
        )
    if any(base.__module__.partition(".")[0] == "equinox" for base in type(tree).__mro__):
        kind = "is_inexact_array" if differentiated else "is_array"
        return (
            f"split the module: `arrays, rest = eqx.partition(module, eqx.{kind})`; pass "
            "`arrays`, and inside the function call `eqx.combine(arrays, rest)`"
        )
    return None


def is_nnx_module(value: object) -> bool:
    """Returns whether a value is a module, optimizer or variable of `flax.nnx`.

    Functions change these in place: `nnx.jit` gives the changes to its caller, `jax.jit` loses
    them.
    """
    return any(
        base.__module__.startswith("flax.nnx") and base.__name__ in ("Pytree", "Object", "Variable")
        for base in type(value).__mro__
    )
