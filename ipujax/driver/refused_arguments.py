"""Errors for arguments that a program does not take: missing, deleted, iterators, no arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import jax
from jax.tree_util import keystr, tree_leaves_with_path

from ipujax.driver.call_arguments import Static
from ipujax.ground import (
    FailedPreconditionError,
    check,
    describe_mismatch,
    refuse_iterators,
    signature_text,
    suggest_split,
)
from lowering import is_ref, jaxpr

_FIX = (
    "name the argument in static_argnums or static_argnames of ipu.compile, close over it, or "
    "pass arrays alone"
)


def refuse_wrong_call(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], name: str
) -> None:
    """Refuses arguments that a function's signature does not take; does nothing for others.

    Raises:
      ConfigTypeError: (a `TypeError`) an argument is missing, is one too many, or has a name that
        the function does not know.
    """
    try:
        signature = inspect.signature(fn)
    except ValueError:  # a builtin without one
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        wrong = f"`{name}`: {describe_mismatch(signature, kwargs, mismatch)}"
        fix = f"call it as {name}{signature_text(signature)}"
        raise check.type_error(wrong, fix) from None


def refuse_deleted_arrays(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], name: str
) -> None:
    """Refuses the first array of a call that an earlier call has deleted; does nothing for others.

    Raises:
      FailedPreconditionError: (a `RuntimeError`) an array has been donated before.
    """
    try:
        arguments = inspect.signature(fn).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return
    for argument, tree in arguments.items():
        for path, leaf in tree_leaves_with_path(tree):
            if isinstance(leaf, jax.Array) and leaf.is_deleted():
                raise FailedPreconditionError(
                    f"{argument}{keystr(path)} of `{name}` has been deleted, by an earlier call "
                    "that donates it or by `.delete()`",
                    where=jaxpr.current_user_line(),
                    fix="pass what the last call returned in its place, or leave the argument out "
                    "of donate_argnums and donate_argnames",
                ) from None


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
                ) from None


def _is_array(leaf: object) -> bool:
    try:
        return is_ref(leaf) or bool(jax.typeof(leaf))
    except TypeError:
        return False
