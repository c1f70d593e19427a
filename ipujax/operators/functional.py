"""Outlined functions: code that a program holds once and calls often."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax

from ipujax.ground import PyTree, check
from lowering import marks


@check.guard
def outlined_function(
    func: Callable[..., PyTree] | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Callable[..., PyTree]:
    """Makes a function one block of code that all its calls share; also a decorator.

    Calls with arguments of the same shapes and dtypes share one trace, as those of a `jax.jit`
    function do, and one code on the tiles in reports, whatever
    `IPUConfig.optimizations.enable_graph_outlining` says. So, as with `jax.jit`, what `func` reads
    besides its arguments is read once. Random numbers are not shared: each call draws its own.

    Args:
      func: takes positional arguments only, all of them (pytrees of) arrays; returns at least one
        array. Bind anything else with a closure or `functools.partial`.
      unique_sharding: run the whole call on one IPU, the smallest that a shard in `func` names (a
        shard around the call counts first), and copy all inputs there before. Otherwise shards
        inside `func` are obeyed one by one.
      keep_input_layouts: a hint about tile layouts, kept in the compiled code as the frontend
        attribute `keep_input_layouts`: whether inputs stay on their tiles (True) or are laid out
        anew for the function (False). `None` leaves it open.
      name: the function's name in program texts; that of `func` by default.

    Returns:
      A function with the results of `func`; without `func`, a decorator that makes one.

    Raises:
      ConfigTypeError: (a `TypeError`) for arguments of wrong types, and in a call for keyword
        arguments and for what is no array.
      OperatorError: (a `ValueError`) in the call, if `func` returns no array.
    """
    check.require_function(func, "the func of outlined_function", optional=True)
    check.require_flag(unique_sharding, "the unique_sharding of outlined_function")
    check.require_optional_flag(keep_input_layouts, "the keep_input_layouts of outlined_function")
    check.require_text(name, "the name of outlined_function", optional=True)
    if func is None:
        return lambda wrapped: outlined_function(wrapped, unique_sharding, keep_input_layouts, name)
    label = name or getattr(func, "__name__", "outlined_function")
    scopes = [marks.write_mark(marks.BLOCK, _block_name(func, label))]
    if unique_sharding:
        scopes.append(marks.write_mark(marks.UNIT, label))
    if keep_input_layouts is not None:
        scopes.append(
            marks.write_mark(marks.ATTRIBUTE, "keep_input_layouts", str(keep_input_layouts))
        )
    shared = jax.jit(_wrap_outlined_function(func, label))

    @functools.wraps(func)
    def call_outlined(*args: PyTree, **kwargs: PyTree) -> PyTree:
        check.require_positional_arrays(args, kwargs, f"outlined function `{label}`")
        with jax.named_scope("/".join(scopes)):
            return shared(*args)

    return call_outlined


def _block_name(func: Callable[..., PyTree], label: str) -> str:
    """Returns the name of a function's block of code: its name, and the line of its definition."""
    code = getattr(func, "__code__", None)
    return label if code is None else f"{label}:{code.co_firstlineno}"


def _wrap_outlined_function(func: Callable[..., PyTree], label: str) -> Callable[..., PyTree]:
    def call_and_check(*args: PyTree) -> PyTree:
        return check.require_some_array(func(*args), f"outlined function `{label}`")

    call_and_check.__name__ = call_and_check.__qualname__ = label
    return call_and_check
