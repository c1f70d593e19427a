"""Modules of flax and Equinox, recognised without importing these libraries."""

from __future__ import annotations

from collections.abc import Callable

_SPLITS: dict[str, Callable[[bool], str]] = {
    "equinox": lambda differentiated: (
        "split the module: `arrays, rest = eqx.partition(module, "
        f"eqx.is_{'inexact_' if differentiated else ''}array)`; pass `arrays`, and inside the "
        "function call `eqx.combine(arrays, rest)`"
    ),
    "flax": lambda differentiated: (
        "split the module: `graph, params, rest = nnx.split(module, nnx.Param, ...)`; pass "
        "`params` first, `rest` in an argument that batch_argnums does not name, and inside the "
        "function call `nnx.merge(graph, params, rest)`"
        if differentiated
        else "split the module: `graph, arrays = nnx.split(module)`; pass `arrays`, and inside "
        "the function call `nnx.merge(graph, arrays)`"
    ),
}


def suggest_split(tree: object, *, differentiated: bool = False) -> str | None:
    """Returns how a user splits a module into its arrays and the rest; None for what is no module.

    Args:
      tree: an argument of a user's function.
      differentiated: whether the function is differentiated with respect to it.
    """
    libraries = (base.__module__.partition(".")[0] for base in type(tree).__mro__)
    return next((_SPLITS[name](differentiated) for name in libraries if name in _SPLITS), None)


def is_nnx_module(value: object) -> bool:
    """Returns whether a value is a module, optimizer or variable of `flax.nnx`.

    Functions change these in place: `nnx.jit` gives the changes to its caller, `jax.jit` loses
    them.
    """
    return any(
        base.__module__.startswith("flax.nnx") and base.__name__ in ("Pytree", "Object", "Variable")
        for base in type(value).__mro__
    )
