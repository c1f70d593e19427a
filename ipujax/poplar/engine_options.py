"""The options of an engine: those that act, and C++'s others, which are accepted and logged."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Mapping
from typing import Any

from ipujax.ground import ConfigError
from ipujax.poplar.exceptions import check, poplar_error
from ipujax.poplar.user_lines import user_line
from ipujax.report import auto_report
from ipujax.system import get_logger, read_engine_options

READ_UNWRITTEN = "debug.readUnwritten"
_ALLOW_OUT_OF_MEMORY = "debug.allowOutOfMemory"
_RETAIN = "debug.retainDebugInformation"
_REPORTS = "autoReport."
_CATEGORIES = (
    "debug",
    "exchange",
    "memory",
    "opt",
    "prng",
    "profiler",
    "streamCallbacks",
    "target",
)
"""The categories of C++'s options, beside `autoReport`."""


@dc.dataclass(frozen=True)
class EngineSettings:
    """The settings of an engine.

    Attributes:
      takes_unwritten_as_zero: whether elements that nothing has written may be read.
      allows_out_of_memory: whether tiles may hold more than they have.
      keeps_reports: whether there are reports.
      auto_report: the options of reports that are written by themselves.
    """

    takes_unwritten_as_zero: bool
    allows_out_of_memory: bool
    keeps_reports: bool
    auto_report: Mapping[str, str]


def read_engine_settings(options: Any) -> EngineSettings:
    """Returns the settings of options, and logs those without effect once.

    Args:
      options: texts by names, as C++'s `OptionFlags`; True and False stand for their texts.

    Raises:
      poplar_error: names that C++ does not have, or values that an option does not take.
    """
    check.require_instance(options, Mapping, "options", "a dict", optional=True)
    texts = {
        check.require_instance(name, str, "an option's name"): _text_of(value)
        for name, value in (options or {}).items()
    }
    without_effect: list[str] = []
    for name in texts:
        category = name.partition(".")[0]
        if category == "debugger":
            raise NotImplementedError(f"the engine option {name!r}: there is no debugger of tiles")
        if name in (READ_UNWRITTEN, _ALLOW_OUT_OF_MEMORY, _RETAIN) or name.startswith(_REPORTS):
            continue
        if category not in _CATEGORIES:
            raise check.value_error(
                f"there is no engine option {name!r} (at {user_line()})",
                f"options begin with autoReport, {', '.join(_CATEGORIES)}",
            )
        without_effect.append(name)
    reports = {name: text for name, text in texts.items() if name.startswith(_REPORTS)}
    try:
        auto_report.parse_auto_report_options(read_engine_options(reports))
    except ConfigError as error:
        raise poplar_error(str(error), where=user_line()) from error
    if without_effect:
        _log_options_without_effect(tuple(sorted(without_effect)))
    return EngineSettings(
        _require_one_of(texts, READ_UNWRITTEN, "error", ("error", "zero")) == "zero",
        _require_one_of(texts, _ALLOW_OUT_OF_MEMORY, "false", ("true", "false")) == "true",
        _require_one_of(texts, _RETAIN, "true", ("true", "false")) == "true",
        reports,
    )


def _text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_one_of(
    texts: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]
) -> str:
    value = texts.get(name, default)
    if value not in choices:
        raise check.value_error(f"{name} is {value!r}", f"give one of {', '.join(choices)}")
    return value


@functools.cache
def _log_options_without_effect(names: tuple[str, ...]) -> None:
    get_logger().info("options of Poplar's engine that change nothing here: %s", ", ".join(names))
