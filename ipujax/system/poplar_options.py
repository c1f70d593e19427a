"""Checks the Poplar options that ipujax knows."""

from __future__ import annotations

import dataclasses as dc
import difflib
import functools
import json
import logging
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ipujax.ground import ConfigError
from ipujax.system import log
from ipujax.system import poplar_names as names

PROPORTION = "availableMemoryProportion"
PARTIALS = "partialsType"
METHOD = "method"
ALLOW_OUT_OF_MEMORY = "debug.allowOutOfMemory"

EXCHANGE_GOAL = "opt.internalExchangeOptimisationTarget"
_EXCHANGE_GOALS = ("cycles", "balanced", "memory")

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
_Options: TypeAlias = Mapping[Any, object]
"""Options as a user gave them: names and values of any types."""


def check_planner_options(options: _Options, source: str) -> dict[str, str]:
    """Checks the options of a planner, and returns them as text.

    Args:
      options: values by name; options without effect here are not checked, but logged.
      source: the name of the option that holds them, for errors.

    Raises:
      ConfigError: (a `ValueError`) a value that the planner cannot work with.
    """
    texts = {str(name): str(value) for name, value in options.items()}
    known_options = names.CONVOLUTIONS if "convolution" in source else names.MATMULS
    _log_options_without_effect(texts, (PROPORTION, PARTIALS), known_options, source)
    if PROPORTION in texts:
        _check_proportion(texts[PROPORTION], source)
    if PARTIALS in texts and texts[PARTIALS] not in _DTYPES:
        raise ConfigError(
            f"{source}[{PARTIALS!r}] is {texts[PARTIALS]!r}, but must be one of "
            f"{', '.join(map(repr, _DTYPES))}"
        )
    return texts


def _check_proportion(text: str, source: str) -> None:
    try:
        proportion = float(text)
    except ValueError:
        proportion = float("nan")
    if not 0.0 <= proportion <= 1.0:
        raise ConfigError(
            f"{source}[{PROPORTION!r}] is {text!r}, but must be a number from 0 to 1: the share of "
            "a tile's memory that the temporaries of one operation may take"
        )


@dc.dataclass(frozen=True)
class EngineOptions:
    """The options of Poplar's engine: those of the environment, then those of the program.

    Attributes:
      program: `compilation_poplar_options` of its configuration.
      environment: the options in `POPLAR_ENGINE_OPTIONS`.
    """

    program: Mapping[str, Any]
    environment: Mapping[str, Any]

    @property
    def option_names(self) -> list[str]:
        """The names of all options that are set, in order."""
        return list({**self.program, **self.environment})

    def get_option(self, name: str, default: object = None) -> Any:
        """Returns an option's value, if it is set."""
        return self.environment.get(name, self.program.get(name, default))

    def locate_option(self, name: str) -> str:
        """Returns the place that sets an option, for messages."""
        return f"{VARIABLE if name in self.environment else _CONFIG}[{name!r}]"

    def is_true(self, name: str, *, default: bool) -> bool:
        """Returns the value of an option that is either true or false.

        Raises:
          ConfigError: (a `ValueError`) neither the text "true" nor "false".
        """
        value = self.get_option(name, str(default).lower())
        if value not in ("true", "false"):
            raise ConfigError(
                f'{self.locate_option(name)} is {value!r}, but must be the text "true" or "false"'
            )
        return value == "true"


def read_engine_options(program: _Options) -> EngineOptions:
    """Returns the engine's options, given a configuration's `compilation_poplar_options`.

    The environment is read on every call, and parsed when it has changed.

    Raises:
      ConfigError: (a `ValueError`) `POPLAR_ENGINE_OPTIONS` holds no JSON object.
    """
    return EngineOptions(
        _stringify_option_names(program), _parse_engine_options(os.environ.get(VARIABLE, ""))
    )


def _stringify_option_names(options: _Options) -> dict[str, object]:
    return {str(name): value for name, value in options.items()}


@functools.lru_cache(maxsize=8)
def _parse_engine_options(text: str) -> Mapping[str, object]:
    if not text.strip():
        return {}
    example = 'write it like \'{"autoReport.all": "true"}\''
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as broken:  # broken, or numbers or nests without end
        shortened_text = textwrap.shorten(text, _SHOWN)
        raise ConfigError(
            f"{VARIABLE} holds {shortened_text!r}, which is no JSON: {broken}; {example}"
        ) from None
    if not isinstance(options, dict):
        raise ConfigError(f"{VARIABLE} holds {text!r}, which is no JSON object; {example}")
    return {name: _as_option_text(value) for name, value in options.items()}


def _as_option_text(value: object) -> object:
    """Returns JSON's true or false as its text, as Poplar reads it."""
    return json.dumps(value) if isinstance(value, bool) else value


def allows_out_of_memory(options: EngineOptions, *, by_default: bool = True) -> bool:
    """Returns whether programs that exceed a tile's memory may run; `by_default` if no option says.

    Raises:
      ConfigError: (a `ValueError`) neither "true" nor "false".
    """
    for source_options, source in ((options.program, _CONFIG), (options.environment, VARIABLE)):
        other_names = [name for name in source_options if not name.lower().startswith(_REPORTS)]
        effective_names = (ALLOW_OUT_OF_MEMORY, EXCHANGE_GOAL)
        _log_options_without_effect(other_names, effective_names, names.ENGINE, source)
    return options.is_true(ALLOW_OUT_OF_MEMORY, default=by_default)


def check_compilation_options(options: _Options) -> None:
    """Checks the options of a configuration, whatever the environment says.

    Raises:
      ConfigError: (a `ValueError`) a value that ipujax cannot work with.
    """
    engine_options = EngineOptions(_stringify_option_names(options), {})
    allows_out_of_memory(engine_options)
    _exchange_goal_of(engine_options)
    for name in engine_options.option_names:
        if name.lower().startswith(_REPORTS) and name not in _NOT_FLAGS:
            engine_options.is_true(name, default=False)


def choose_exchange_goal(options: _Options) -> str:
    """Returns what the code of exchanges is compiled for: cycles, memory, or something between.

    Args:
      options: `compilation_poplar_options`; the environment's options come before them.

    Raises:
      ConfigError: (a `ValueError`) there is no such goal.
    """
    return _exchange_goal_of(read_engine_options(options))


def _exchange_goal_of(options: EngineOptions) -> str:
    goal = options.get_option(EXCHANGE_GOAL, _EXCHANGE_GOALS[0])
    if goal not in _EXCHANGE_GOALS:
        raise ConfigError(
            f"{options.locate_option(EXCHANGE_GOAL)} is {goal!r}, but must be one of "
            f"{', '.join(map(repr, _EXCHANGE_GOALS))}"
        )
    return goal


def check_matmul_options(options: _Options) -> None:
    """Checks `matmuls.poplar_options`, as `check_planner_options` does."""
    check_planner_options(options, "matmuls.poplar_options")


def check_convolution_options(options: _Options) -> None:
    """Checks `convolutions.poplar_options`, as `check_planner_options` does."""
    check_planner_options(options, "convolutions.poplar_options")


def log_pooling_options(options: _Options) -> None:
    """Logs that options of pooling change nothing."""
    _log_options_without_effect(map(str, options), (), names.POOLING, "pooling.poplar_options")


def choose_ring_method(options: _Options) -> str:
    """Returns the method of collectives on rings; logs other options of the library.

    Raises:
      ConfigError: (a `ValueError`) there is no such method.
    """
    source = "gcl_poplar_options"
    _log_options_without_effect(map(str, options), (METHOD,), names.COLLECTIVES, source)
    method = options.get(METHOD, _AUTO)
    if method == "quad_directional_ring":
        _log_option_once(
            logging.INFO, f"{source}[{METHOD!r}] is {method!r}, which is modelled as {_AUTO!r}"
        )
        return _AUTO
    if method not in _RINGS:
        allowed_methods = ", ".join(map(repr, _RINGS))
        raise ConfigError(
            f"{source}[{METHOD!r}] is {method!r}, but must be one of {allowed_methods}"
        )
    return method


def _log_options_without_effect(
    option_names: Iterable[str],
    effective_names: Sequence[str],
    reasons: Mapping[str, str],
    source: str,
) -> None:
    """Logs options that change nothing: known ones with the reason, others as a warning."""
    for name in option_names:
        if name in effective_names:
            continue
        if name in reasons:
            _log_option_once(
                logging.INFO, f"{source}[{name!r}] changes nothing here: {reasons[name]}"
            )
            continue
        similar_names = [
            known_name
            for known_name in (*effective_names, *reasons)
            if _are_names_similar(name, known_name)
        ]
        hint = (
            f"did you mean {similar_names[0]!r}?"
            if similar_names
            else "ipujax knows no such option"
        )
        _log_option_once(logging.WARNING, f"{source}[{name!r}] changes nothing; {hint}")


def _are_names_similar(name: str, other_name: str) -> bool:
    return difflib.SequenceMatcher(None, name.lower(), other_name.lower()).ratio() >= _ALIKE


@functools.cache
def _log_option_once(level: int, text: str) -> None:
    """Logs a line, once in a process."""
    log.get_logger().log(level, text)
