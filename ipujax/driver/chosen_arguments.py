"""Checks and completes `static_argnums`, `donate_argnums` and their names, as `jax.jit` does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ipujax.driver.call_arguments import Chosen
from ipujax.ground import ConfigError, check

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_Parameters = Mapping[str, inspect.Parameter]


def parse_argument_selection(numbers: object, names: object, prefix: str) -> Chosen:
    """Reads the positions and names with which a user selects arguments.

    Args:
      numbers: one or several positions; () or None for none.
      names: one or several names; () or None for none.
      prefix: the prefix of the options' names: "static" or "donate".

    Raises:
      ConfigTypeError: (a `TypeError`) what is no number, or no name.
    """
    positions = [
        check.require_integer(n, f"an entry of {prefix}_argnums") for n in _list_entries(numbers)
    ]
    called = [
        check.require_text(name, f"an entry of {prefix}_argnames") for name in _list_entries(names)
    ]
    return Chosen(tuple(positions), tuple(called))


def complete_argument_selection(fn: Callable[..., object], chosen: Chosen, prefix: str) -> Chosen:
    """Completes a selection of arguments: positions from names, or names from positions.

    A selection of a builtin function without a signature is returned unchanged.

    Raises:
      ConfigError: (a `ValueError`) arguments that the function does not have.
    """
    positions, called = chosen.numbers, chosen.names
    if not positions and not called:
        return chosen
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return chosen
    _check_argnums(parameters, positions, prefix)
    _check_argnames(parameters, called, prefix)
    if positions and called:
        return chosen
    in_order = [p for p in parameters.values() if p.kind in _BY_POSITION]
    if called:
        return Chosen(tuple(i for i, p in enumerate(in_order) if p.name in called), called)
    count = len(in_order)
    named_parameters = [in_order[number] for number in positions if -count <= number < count]
    return Chosen(positions, tuple(p.name for p in named_parameters if p.kind in _BY_NAME))


def refuse_static_donated_arguments(static: Chosen, donated: Chosen) -> None:
    """Raises an error if an argument is both static and donated.

    Raises:
      ConfigError: (a `ValueError`) an argument that is static and donated.
    """
    both = {*static.names} & {*donated.names}
    if both:
        raise ConfigError(
            f"static and donated arguments of ipu.compile have {_join_reprs(both)} in common",
            fix="a static argument is no array, so that there is nothing to donate: name it once",
        )


def _list_entries(selection: Any) -> list[Any]:
    """Returns one or several entries as a list."""
    if selection is None:
        return []
    several = isinstance(selection, Iterable) and not isinstance(selection, str)
    return (
        check.require_bounded_entries(selection, "a choice of ipu.compile's arguments")
        if several
        else [selection]
    )


def _check_argnums(parameters: _Parameters, numbers: tuple[int, ...], prefix: str) -> None:
    kinds = [p.kind for p in parameters.values()]
    count = sum(kind in _BY_POSITION for kind in kinds)
    wrong = [n for n in numbers if not -count <= n < count]
    if wrong and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise ConfigError(
            f"{prefix}_argnums of ipu.compile has {_join_reprs(wrong)}, and the function takes "
            f"{count} argument{'s' * (count != 1)} by position",
            fix=f"count from 0; name arguments by keyword in {prefix}_argnames",
        )


def _check_argnames(parameters: _Parameters, names: tuple[str, ...], prefix: str) -> None:
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = [name for name, p in parameters.items() if p.kind in _BY_NAME]
    only_by_position = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
    wrong = [n for n in names if n in only_by_position or not (takes_any or n in named)]
    if wrong:
        raise ConfigError(
            f"{prefix}_argnames of ipu.compile has {_join_reprs(wrong)}, which the function does "
            "not take by keyword",
            fix=f"it takes {_join_reprs(named) or 'none'}; give others by number in "
            f"{prefix}_argnums",
        )


def _join_reprs(values: Iterable[object]) -> str:
    return ", ".join(map(repr, values))
