"""The Poplar options that ipujax knows, checked."""

from __future__ import annotations

import dataclasses as dc
import difflib
import functools
import json
import logging
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ipujax.errors import ConfigError
from ipujax.system import log
from ipujax.system import poplar_names as names

PROPORTION = "availableMemoryProportion"
PARTIALS = "partialsType"
METHOD = "method"
ALLOW_OUT_OF_MEMORY = "debug.allowOutOfMemory"

VARIABLE = "POPLAR_ENGINE_OPTIONS"
_CONFIG = "compilation_poplar_options"

_REPORTS = "autoreport."  # names that `report.auto_report` checks
_NOT_FLAGS = ("autoReport.directory", "autoReport.executionProfileProgramRunCount")
_ALIKE = 0.85  # of difflib
_SHOWN = 200  # characters of a value that is wrong
_AUTO = "auto"
_RINGS = (
    _AUTO,
    "clockwise_ring",
    "anticlockwise_ring",
    "bidirectional_ring_pair",
    "meet_in_middle_ring",
)
_DTYPES = ("half", "float", "float16", "float32")


def planner_options(options: Mapping[Any, Any], where: str) -> dict[str, str]:
    """The options of a planner, as text.

    Args:
      options: names to values; those that change nothing here pass unchecked, and are logged.
      where: who gave them, for errors.

    Raises:
      ConfigError: (a `ValueError`) a value that the planner cannot work with.
    """
    texts = {str(name): str(value) for name, value in options.items()}
    kind = names.CONVOLUTIONS if "convolution" in where else names.MATMULS
    _log_idle(texts, (PROPORTION, PARTIALS), kind, where)
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
    for given, where in ((options.program, _CONFIG), (options.environment, VARIABLE)):
        others = [name for name in given if not name.lower().startswith(_REPORTS)]
        _log_idle(others, (ALLOW_OUT_OF_MEMORY,), names.ENGINE, where)
    return options.is_true(ALLOW_OUT_OF_MEMORY, default=True)


def check_compilation_options(options: Mapping[Any, Any]) -> None:
    """Checks the options of a configuration by themselves, whatever the environment says.

    Raises:
      ConfigError: (a `ValueError`) a value that ipujax cannot work with.
    """
    given = EngineOptions(_named(options), {})
    may_run_out_of_memory(given)
    for name in given.names:
        if name.lower().startswith(_REPORTS) and name not in _NOT_FLAGS:
            given.is_true(name, default=False)


def check_matmul_options(options: Mapping[Any, Any]) -> None:
    """Checks what `matmuls.poplar_options` holds, as `planner_options` does."""
    planner_options(options, "matmuls.poplar_options")


def check_convolution_options(options: Mapping[Any, Any]) -> None:
    """Checks what `convolutions.poplar_options` holds, as `planner_options` does."""
    planner_options(options, "convolutions.poplar_options")


def log_pooling_options(options: Mapping[Any, Any]) -> None:
    """Logs that options of pooling change nothing."""
    _log_idle(map(str, options), (), names.POOLING, "pooling.poplar_options")


def ring_method(options: Mapping[Any, Any]) -> str:
    """The way of collectives around rings; other options of the library are logged.

    Raises:
      ConfigError: (a `ValueError`) there is no such way.
    """
    where = "gcl_poplar_options"
    _log_idle(map(str, options), (METHOD,), names.COLLECTIVES, where)
    method = options.get(METHOD, _AUTO)
    if method == "quad_directional_ring":
        _log(logging.INFO, f"{where}[{METHOD!r}] is {method!r}, which is modelled as {_AUTO!r}")
        return _AUTO
    if method not in _RINGS:
        known = ", ".join(map(repr, _RINGS))
        raise ConfigError(f"{where}[{METHOD!r}] is {method!r}, but must be one of {known}")
    return method


def _log_idle(
    given: Iterable[str], acting: Sequence[str], idle: Mapping[str, str], where: str
) -> None:
    """Logs options that change nothing: known ones with the reason, others as a warning."""
    for name in given:
        if name in acting:
            continue
        if name in idle:
            _log(logging.INFO, f"{where}[{name!r}] changes nothing here: {idle[name]}")
            continue
        meant = [other for other in (*acting, *idle) if _are_alike(name, other)]
        hint = f"did you mean {meant[0]!r}?" if meant else "ipujax knows no such option"
        _log(logging.WARNING, f"{where}[{name!r}] changes nothing; {hint}")


def _are_alike(name: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, name.lower(), other.lower()).ratio() >= _ALIKE


@functools.cache
def _log(level: int, text: str) -> None:
    """Logs a line, once in a process."""
    log.get_logger().log(level, text)
