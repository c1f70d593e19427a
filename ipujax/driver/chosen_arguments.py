"""Which arguments of a function are meant by numbers and names, as `jax.jit` understands them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ipujax.checks.arrays import check
from ipujax.driver.arguments import Chosen
from ipujax.errors import ConfigError

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_Parameters = Mapping[str, inspect.Parameter]


def read_choice(numbers: Any, names: Any, what: str) -> Chosen:
    """Some arguments as a user chose them.

    Args:
      numbers: one or several positions; () or None for none.
      names: one or several names; () or None for none.
      what: the arguments are called: "static" or "donate".

    Raises:
      ConfigTypeError: (a `TypeError`) what is no number, or no name.
    """
    positions = [check.integer(n, f"an entry of {what}_argnums") for n in _listed(numbers)]
    called = [check.text(name, f"an entry of {what}_argnames") for name in _listed(names)]
    return Chosen(tuple(positions), tuple(called))


def complete_choice(fn: Callable[..., object], chosen: Chosen, what: str) -> Chosen:
    """Some arguments of a function; where only their numbers or names are given, both follow.

    Of builtins that hide their signature nothing follows.

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
    _check_numbers(parameters, positions, what)
    _check_names(parameters, called, what)
    if positions and called:
        return chosen
    in_order = [p for p in parameters.values() if p.kind in _BY_POSITION]
    if called:
        return Chosen(tuple(i for i, p in enumerate(in_order) if p.name in called), called)
    count = len(in_order)
    found = [in_order[number] for number in positions if -count <= number < count]
    return Chosen(positions, tuple(p.name for p in found if p.kind in _BY_NAME))


def check_apart(static: Chosen, donated: Chosen) -> None:
    """Refuses what is a constant and given away.

    Raises:
      ConfigError: (a `ValueError`) an argument that is static and donated.
    """
    both = {*static.names} & {*donated.names}
    if both:
        raise ConfigError(
            f"static and donated arguments of ipu.compile have {_written(both)} in common",
            fix="a static argument is no array, so that there is nothing to donate: name it once",
        )


def _listed(given: Any) -> list[Any]:
    """One or several entries as a list."""
    if given is None:
        return []
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return check.entries(given, "a choice of ipu.compile's arguments") if several else [given]


def _check_numbers(parameters: _Parameters, numbers: tuple[int, ...], what: str) -> None:
    kinds = [p.kind for p in parameters.values()]
    count = sum(kind in _BY_POSITION for kind in kinds)
    wrong = [n for n in numbers if not -count <= n < count]
    if wrong and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise ConfigError(
            f"{what}_argnums of ipu.compile has {_written(wrong)}, and the function takes {count} "
            f"argument{'s' * (count != 1)} by position",
            fix=f"count from 0; name arguments by keyword in {what}_argnames",
        )


def _check_names(parameters: _Parameters, names: tuple[str, ...], what: str) -> None:
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = [name for name, p in parameters.items() if p.kind in _BY_NAME]
    only_by_position = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
    wrong = [n for n in names if n in only_by_position or not (takes_any or n in named)]
    if wrong:
        raise ConfigError(
            f"{what}_argnames of ipu.compile has {_written(wrong)}, which the function does not "
            "take by keyword",
            fix=f"it takes {_written(named) or 'none'}; give others by number in {what}_argnums",
        )


def _written(values: Iterable[object]) -> str:
    return ", ".join(map(repr, values))
