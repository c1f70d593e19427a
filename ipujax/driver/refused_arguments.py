"""The error for arguments that programs do not take: Python's iterators, and what is no array."""

from __future__ import annotations

import jax
from jax.tree_util import keystr, tree_leaves_with_path

from ipujax.driver.call_arguments import Static
from ipujax.ground import check, refuse_iterators, suggest_split
from lowering import is_ref

_FIX = (
    "name the argument in static_argnums or static_argnames of ipu.compile, close over it, or "
    "pass arrays alone"
)


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
                raise check.type_error(
                    f"{argument}{keystr(path)} of `{name}` is of type {type(leaf).__name__}, and "
                    "programs take arrays and numbers",
                    suggest_split(tree) or _FIX,
                )


def _is_array(leaf: object) -> bool:
    try:
        return is_ref(leaf) or bool(jax.typeof(leaf))
    except TypeError:
        return False
