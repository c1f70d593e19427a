"""The Poplar options that ipujax knows, checked."""

from __future__ import annotations

import dataclasses as dc
import difflib
import functools
import json
import os
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from ipujax.errors import ConfigError
from ipujax.system import log

PROPORTION = "availableMemoryProportion"
PARTIALS = "partialsType"
ALLOW_OUT_OF_MEMORY = "debug.allowOutOfMemory"

VARIABLE = "POPLAR_ENGINE_OPTIONS"
_CONFIG = "compilation_poplar_options"

_ALIKE = 0.85  # of difflib; Poplar's own names for other options are less alike
_SHOWN = 200  # characters of a value that is wrong
_DTYPES = ("half", "float", "float16", "float32")


def planner_options(options: Mapping[Any, Any], where: str) -> dict[str, str]:
    """The options of a planner, as text.

    Args:
      options: names to values; those that ipujax does not know pass unchecked, with a
        warning if they look like a misspelt one.
      where: who gave them, for errors.

    Raises:
      ConfigError: (a `ValueError`) a value that the planner cannot work with.
    """
    texts = {str(name): str(value) for name, value in options.items()}
    _look_for_slips(texts, (PROPORTION, PARTIALS), where)
    if PROPORTION in texts:
        _check_proportion(texts[PROPORTION], where)
    if PARTIALS in texts and texts[PARTIALS] not in _DTYPES:
        raise ConfigError(
            f"{where}[{PARTIALS!r}] is {texts[PARTIALS]!r}, but must be one of "
            f"{', '.join(map(repr, _DTYPES))}"
        )
    return texts


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


@dc.dataclass(frozen=True)
class EngineOptions:
    """Options of Poplar's engine: those of the environment, and else those of the program.

    Attributes:
      program: `compilation_poplar_options` of its configuration.
      environment: what `POPLAR_ENGINE_OPTIONS` holds.
    """

    program: Mapping[str, Any]
    environment: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        """Of all options that are given, in order."""
        return list({**self.program, **self.environment})

    def get(self, name: str, default: Any = None) -> Any:
        """An option's value, if it is given."""
        return self.environment.get(name, self.program.get(name, default))

    def where(self, name: str) -> str:
        """What gives an option its value, for messages."""
        return f"{VARIABLE if name in self.environment else _CONFIG}[{name!r}]"

    def is_true(self, name: str, *, default: bool) -> bool:
        """The value of an option that is either true or false.

        Raises:
          ConfigError: (a `ValueError`) neither the text "true" nor "false".
        """
        value = self.get(name, str(default).lower())
        if value not in ("true", "false"):
            raise ConfigError(
                f'{self.where(name)} is {value!r}, but must be the text "true" or "false"'
            )
        return value == "true"


def engine_options(program: Mapping[Any, Any]) -> EngineOptions:
    """The options for a program whose configuration has these `compilation_poplar_options`.

    The environment is read on every call, and parsed when it has changed.

    Raises:
      ConfigError: (a `ValueError`) `POPLAR_ENGINE_OPTIONS` holds no JSON object.
    """
    return EngineOptions(_named(program), _parsed(os.environ.get(VARIABLE, "")))


def _named(options: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in options.items()}


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    example = 'write it like \'{"autoReport.all": "true"}\''
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as broken:  # broken, or numbers or nests without end
        shown = textwrap.shorten(text, _SHOWN)
        raise ConfigError(
            f"{VARIABLE} holds {shown!r}, which is no JSON: {broken}; {example}"
        ) from None
    if not isinstance(options, dict):
        raise ConfigError(f"{VARIABLE} holds {text!r}, which is no JSON object; {example}")
    return options


def may_run_out_of_memory(options: EngineOptions) -> bool:
    """What a program's options say of one that does not fit; they run by default.

    Raises:
      ConfigError: (a `ValueError`) neither "true" nor "false".
    """
    for names, where in ((options.program, _CONFIG), (options.environment, VARIABLE)):
        _look_for_slips(names, (ALLOW_OUT_OF_MEMORY,), where)
    return options.is_true(ALLOW_OUT_OF_MEMORY, default=True)


def check_compilation_options(options: Mapping[Any, Any]) -> None:
    """Checks the options of a configuration by themselves, whatever the environment says.

    Raises:
      ConfigError: (a `ValueError`) a value that ipujax cannot work with.
    """
    may_run_out_of_memory(EngineOptions(_named(options), {}))


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
