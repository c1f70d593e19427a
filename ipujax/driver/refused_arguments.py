"""The error for arguments that programs do not take: Python's iterators, and what is no array."""

from __future__ import annotations

import jax
from jax.tree_util import keystr, tree_leaves_with_path

from ipujax.driver.call_arguments import Static
from ipujax.ground import check, refuse_iterators
from lowering import is_ref

_FIX = (
    "name the argument in static_argnums or static_argnames of ipu.compile, close over it, or "
    "pass arrays alone"
)
_FIX_BY_LIBRARY = {
    "equinox": "split the module: `arrays, rest = eqx.partition(module, eqx.is_array)`; pass "
    "`arrays`, and inside the function call `eqx.combine(arrays, rest)`",
    "flax": "split the module: `graph, arrays = nnx.split(module)`; pass `arrays`, and inside the "
    "function call `nnx.merge(graph, arrays)`",
}
"""The fix for an argument whose class is derived from one of a library of models."""


def refuse_arguments_that_are_no_arrays(
    args: tuple[object, ...], kwargs: dict[str, object], static: Static, name: str
) -> None:
    """Refuses the first argument that a program does not take; does nothing if there is none.

    Args:
      args: the arguments of the call by position.
      kwargs: those by keyword.
      static: which of them are constants, and may be anything.
      name: the name of the compiled function.

    Raises:
      ConfigTypeError: (a `TypeError`) an iterator, or a leaf of a pytree that is no array.
    """
    refuse_iterators(args, kwargs, name)
    constants = static.find_selected_positions(len(args))
    dynamic = {f"args[{i}]": arg for i, arg in enumerate(args) if i not in constants}
    dynamic |= {f"kwargs[{k!r}]": arg for k, arg in kwargs.items() if k not in static.names}
    for argument, tree in dynamic.items():
        for path, leaf in tree_leaves_with_path(tree):
            if not _is_array(leaf):
                libraries = (base.__module__.partition(".")[0] for base in type(tree).__mro__)
                fixes = (_FIX_BY_LIBRARY[lib] for lib in libraries if lib in _FIX_BY_LIBRARY)
                raise check.type_error(
                    f"{argument}{keystr(path)} of `{name}` is of type {type(leaf).__name__}, and "
                    "programs take arrays and numbers",
                    next(fixes, _FIX),
                )


def _is_array(leaf: object) -> bool:
    try:
        return is_ref(leaf) or bool(jax.typeof(leaf))
    except TypeError:
        return False
