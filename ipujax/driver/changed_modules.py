"""The warning about modules of `flax.nnx` that a function changes in place, to no effect."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax.tree_util import keystr, tree_leaves_with_path

from ipujax.ground import is_nnx_module, parameter_names
from ipujax.system import get_logger

_SHOWN = 3


def call_watching_modules(
    function: Callable[..., object],
    name: str,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Calls a function that is being traced, and warns if it changes modules to no effect.

    A value that it puts into a module among its arguments is lost unless the function returns it.

    Args:
      function: the function.
      name: what messages call it.
      args: its arguments by position.
      kwargs: those by keyword.
    """
    if not any(map(is_nnx_module, (*args, *kwargs.values()))):
        return function(*args, **kwargs)
    positions = tuple(range(len(args)))
    names = parameter_names(function, positions) or [f"args[{i}]" for i in positions]
    arguments = [*zip(names, args, strict=True), *kwargs.items()]
    modules = {argument: value for argument, value in arguments if is_nnx_module(value)}
    leaves_before = {argument: _leaves(module) for argument, module in modules.items()}
    result = function(*args, **kwargs)
    returned = {id(leaf) for leaf in jax.tree.leaves(result)}
    lost = [
        f"{argument}{path}"
        for argument, module in modules.items()
        for path, leaf in _leaves(module).items()
        if leaves_before[argument].get(path) is not leaf and id(leaf) not in returned
    ]
    if lost:
        get_logger().warning(
            f"`{name}` changes {', '.join(lost[:_SHOWN])}{', ...' * (len(lost) > _SHOWN)} in "
            "place, and the caller does not get these changes: a program gives back what its "
            "function returns, as jax.jit does and nnx.jit does not. Return `nnx.state(module)`, "
            "and call `nnx.update(module, state)` with it"
        )
    return result


def _leaves(module: object) -> dict[str, object]:
    """Returns the arrays of a module by their paths."""
    return {keystr(path): leaf for path, leaf in tree_leaves_with_path(module)}
