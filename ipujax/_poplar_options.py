"""The Poplar options that ipujax knows, checked."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from ipujax import log
from ipujax.errors import ConfigError

PROPORTION = "availableMemoryProportion"
PARTIALS = "partialsType"
ALLOW_OUT_OF_MEMORY = "debug.allowOutOfMemory"

_ALIKE = 0.85  # of difflib; Poplar's own names for other options are less alike
_DTYPES = ("half", "float", "float16", "float32")


def planner_options(given: Mapping[Any, Any], where: str) -> dict[str, str]:
    """The options of a planner, as text.

    Args:
      given: option names to values; those that ipujax does not know pass unchecked, with a
        warning if they look like a misspelt one.
      where: who gave them, for errors.

    Raises:
      ConfigError: (a `ValueError`) a value that the planner cannot work with.
    """
    options = {str(name): str(value) for name, value in given.items()}
    _look_for_slips(options, (PROPORTION, PARTIALS), where)
    if PROPORTION in options:
        _check_proportion(options[PROPORTION], where)
    if PARTIALS in options and options[PARTIALS] not in _DTYPES:
        raise ConfigError(
            f"{where}[{PARTIALS!r}] is {options[PARTIALS]!r}, but must be one of "
            f"{', '.join(map(repr, _DTYPES))}"
        )
    return options


def _check_proportion(text: str, where: str) -> None:
    try:
        proportion = float(text)
    except ValueError:
        proportion = float("nan")
    if not 0.0 <= proportion <= 1.0:
        raise ConfigError(
            f"{where}[{PROPORTION!r}] is {text!r}, but must be a number from 0 to 1: the share of "
            "a tile's memory that the temporaries of one operation may take"
        )


def may_run_out_of_memory(given: Mapping[Any, Any]) -> bool:
    """What `compilation_poplar_options` say of programs that do not fit; they run by default.

    Raises:
      ConfigError: (a `ValueError`) neither "true" nor "false".
    """
    _look_for_slips(map(str, given), (ALLOW_OUT_OF_MEMORY,), "compilation_poplar_options")
    value = given.get(ALLOW_OUT_OF_MEMORY, "true")
    if value not in ("true", "false"):
        raise ConfigError(
            f"compilation_poplar_options[{ALLOW_OUT_OF_MEMORY!r}] is {value!r}, but must be the "
            'text "true" or "false"'
        )
    return value == "true"


def _look_for_slips(names: Iterable[str], known: Iterable[str], where: str) -> None:
    """Names that Poplar alone knows are right here; one that is nearly ours is a slip."""
    for name in names:
        for meant in known:
            alike = difflib.SequenceMatcher(None, name.lower(), meant.lower()).ratio()
            if name != meant and alike >= _ALIKE:
                _warn(f"{where}[{name!r}] changes nothing; did you mean {meant!r}?")


@functools.cache
def _warn(text: str) -> None:
    """Logs a warning, once in a process."""
    log.get_logger().warning(text)
