"""Convolutions that may run side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from ipujax._collectives import refuse_type
from ipujax._operands import refuse
from lowering import marks

_ATTRIBUTE = "multi_conv"
_PLAN_TYPES = ("parallel", "serial")


def multi_conv(
    func: Callable[..., Any] | None = None, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Declares that the convolutions of a function may run in parallel; also a decorator.

    Numbers are those of the function itself (fact nn.multi_conv_equal). All its operations, and
    those of its gradient, carry the frontend attributes `multi_conv` and, for each option,
    `multi_conv.<option>`. These are in the program for whoever maps it to tiles; the machine
    model plans every convolution by itself, on all tiles, and does not read them.

    Args:
      func: takes positional arguments only, all of them (pytrees of) arrays; returns at least one
        array.
      options: Poplar's options of multi-convolutions: "planType" ("parallel" or "serial"),
        "perConvReservedTiles" (a whole number) and "cycleBackOff" (a number from 0 to 1). Values
        may be text.

    Returns:
      A function with the results of `func`; without `func`, a decorator that makes one.

    Raises:
      ConfigTypeError: (a `TypeError`) `func` is no function or `options` no dict; in a call, for
        keyword arguments.
      OperatorError: (a `ValueError`) Poplar has no such option, or it has no such value (fact
        nn.multi_conv_options); in a call, if `func` returns no array.
    """
    if func is not None and not callable(func):
        raise refuse_type(f"`func` of multi_conv is {func!r}", "give a function")
    texts = _checked(options)
    if func is None:
        return lambda inner: multi_conv(inner, options)
    label = getattr(func, "__name__", "multi_conv")
    attributes = [_attribute(_ATTRIBUTE, "True")]
    attributes += [_attribute(f"{_ATTRIBUTE}.{name}", text) for name, text in texts.items()]

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise refuse_type(
                f"multi_conv function `{label}` was given keyword arguments ({', '.join(kwargs)})",
                "give all arguments by position",
            )
        with jax.named_scope("/".join(attributes)):
            results = func(*args)
        if not jax.tree.leaves(results):
            raise refuse(
                f"multi_conv function `{label}` returned {results!r}, without an array",
                "return at least one array",
            )
        return results

    return run


def _attribute(name: str, value: str) -> str:
    return marks.write(marks.ATTRIBUTE, name, value)


def _checked(options: Any) -> dict[str, str]:
    if options is not None and not isinstance(options, dict):
        raise refuse_type(
            f"`options` of multi_conv is {options!r}, of type {type(options).__name__}",
            'give a dict, such as {"perConvReservedTiles": "50"}',
        )
    given: dict[Any, Any] = options or {}
    for name, value in given.items():
        if name not in _VALUES:
            raise refuse(
                f"multi_conv got invalid_option {name!r}; there are {', '.join(_VALUES)}",
                "give options of single convolutions, such as availableMemoryProportion, in the "
                "configuration's convolutions.poplar_options",
            )
        is_right, wanted = _VALUES[name]
        if not is_right(str(value)):
            raise refuse(f"option {name!r} of multi_conv is {value!r}", f"give {wanted}")
    return {name: str(value) for name, value in given.items()}


def _is_share(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


_VALUES: dict[str, tuple[Callable[[str], bool], str]] = {
    "planType": (lambda text: text in _PLAN_TYPES, " or ".join(map(repr, _PLAN_TYPES))),
    "perConvReservedTiles": (str.isdecimal, "a whole number of tiles"),
    "cycleBackOff": (_is_share, "a number from 0 to 1"),
}
