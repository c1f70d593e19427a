"""`TF_POPLAR_FLAGS`: what a user sets for a run from outside the program.

The names and defaults are those of fact `devices.flags`. The flags are parsed by absl, but into a
`FlagValues` of their own, so that they never meet a program's flags. The environment is read on
every call and parsed when it has changed.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import os
import re
import shlex
from typing import Any

from absl import flags as absl_flags

from ipujax.errors import FlagError
from ipujax.system.log import get_logger

_VARIABLE = "TF_POPLAR_FLAGS"


class SyntheticDataCategory(enum.Enum):
    """What can be made up on the device instead of being sent by the host."""

    Seed = 0
    Infeed = 1
    Outfeed = 2
    HostEmbedding = 3
    Parameters = 4


def _flag(default: Any, doc: str, *, in_key: bool = False, inert: str = "") -> Any:
    """A flag; `inert` says why it changes nothing here, and is shown to whoever sets it."""
    return dataclasses.field(
        default=default, metadata={"doc": doc, "in_key": in_key, "inert": inert}
    )


_XLA_DECIDES = "XLA decides"
_NO_POPLAR = "there is no Poplar compiler behind virtual IPUs"
_NEVER_BUSY = "virtual IPUs are never busy"


@dataclasses.dataclass(frozen=True)
class PoplarFlags:
    """The flags in force; every field is a flag of the same name."""

    help: bool = _flag(False, "Print the flags and go on.")
    use_synthetic_data: bool = _flag(
        False, "Exchange no data with the host: make all of it up on the device.", in_key=True
    )
    synthetic_data_categories: tuple[str, ...] = _flag(
        (),
        "Make up only these kinds of data: a comma-separated list of seed, infeed, outfeed, "
        "hostembedding, parameters.",
        in_key=True,
    )
    synthetic_data_initializer: str = _flag(
        "",
        "What made-up data holds: random, uniform, normal, or an integer; zeros if not given.",
        in_key=True,
    )
    use_ipu_model: bool = _flag(False, "Run on the IPU Model instead of IPUs.", in_key=True)
    log_cycle_count: int = _flag(
        -1,
        "Log the cycles of a run on the device with this ordinal; -1: never.",
        in_key=True,
        inert="cycles are not modelled yet",
    )
    while_loop_brute_force_max_trip_count: int = _flag(
        128,
        "How many iterations to try when looking for a loop's trip count.",
        in_key=True,
        inert=_XLA_DECIDES,
    )
    max_compilation_threads: int = _flag(
        -1, "Threads that compile; -1: no limit.", inert=_XLA_DECIDES
    )
    max_infeed_threads: int = _flag(
        -1,
        "Threads that feed a queue; -1: no limit.",
        inert="each loop reads each infeed in one thread",
    )
    save_vertex_graph: str = _flag(
        "", "Directory for the vertex graph of each program.", inert=_NO_POPLAR
    )
    save_interval_report: str = _flag(
        "", "Directory for the interval report of each program.", inert=_NO_POPLAR
    )
    executable_cache_path: str = _flag(
        "", "Directory in which compiled programs are kept; created if need be."
    )
    dump_schedule_as_dot: bool = _flag(False, "Write the schedule as a DOT file.", inert=_NO_POPLAR)
    tensor_map_file_path: str = _flag(
        "",
        "Directory for the tile mapping of each program.",
        inert="tile mappings are not modelled yet",
    )
    null_data_feed: bool = _flag(False, "Feed infeeds with zeros, without reading their data sets.")
    fallback_scheduler: bool = _flag(
        False,
        "Use the simple scheduler when the best order is too slow to find.",
        in_key=True,
        inert=_XLA_DECIDES,
    )
    show_progress_bar: str = _flag(
        "auto",
        "Show progress while compiling: auto, true, false.",
        inert="compilation is not shown as a bar",
    )
    on_demand_device_poll_time: int = _flag(
        1000,
        "How often to try to attach on demand, in milliseconds; less than 100 counts as 100.",
        inert=_NEVER_BUSY,
    )
    on_demand_device_timeout: int = _flag(
        3_600_000, "How long to try to attach on demand, in milliseconds.", inert=_NEVER_BUSY
    )
    sync_replica_start: bool = _flag(
        False,
        "Start all replicas together.",
        in_key=True,
        inert="replicas of one run always start together",
    )
    enable_hlo_verifier: bool = _flag(
        False, "Check the program after every pass.", inert="programs are always verified"
    )
    allow_nans: bool = _flag(
        False,
        "Do not assume that values are no NaNs.",
        in_key=True,
        inert="values may always be NaNs",
    )

    def synthetic(self, category: SyntheticDataCategory) -> bool:
        """Whether data of a category is made up on the device."""
        return self.use_synthetic_data or category.name.lower() in self.synthetic_data_categories


def poplar_flags() -> PoplarFlags:
    """The flags that `TF_POPLAR_FLAGS` holds now.

    Raises:
      FlagError: if it holds an unknown flag, a value that its flag does not take, or
        `--synthetic_data_initializer` without synthetic data.
    """
    return _parse(os.environ.get(_VARIABLE, ""))


def flags_key() -> tuple[Any, ...]:
    """The values of the flags that tell one executable from another (fact `devices.flags_hash`)."""
    flags = poplar_flags()
    keyed = [field.name for field in dataclasses.fields(flags) if field.metadata["in_key"]]
    return tuple(getattr(flags, name) for name in keyed)


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> PoplarFlags:
    values = _definitions()
    try:
        rest = values(["ipujax", *_words(text)])[1:]
    except absl_flags.UnrecognizedFlagError as unknown:
        raise FlagError(_unknown(unknown.flagname)) from None
    except absl_flags.Error as wrong:
        raise FlagError(f"{_VARIABLE} holds {text!r}: {wrong}") from None
    if rest:
        raise FlagError(
            f"{_VARIABLE} holds {rest[0]!r}, which is no flag; flags are written --name or "
            "--name=value, with blanks between them"
        )
    named = values.flag_values_dict()
    named["synthetic_data_categories"] = _categories(named["synthetic_data_categories"])
    named["on_demand_device_poll_time"] = max(100, named["on_demand_device_poll_time"])
    flags = PoplarFlags(**named)
    _check(flags)
    _warn_of_inert(flags)
    if flags.help:
        print(_help())
    return flags


def _warn_of_inert(flags: PoplarFlags) -> None:
    for field in dataclasses.fields(flags):
        why = field.metadata["inert"]
        if why and getattr(flags, field.name) != field.default:
            get_logger().warning("%s: --%s has no effect: %s", _VARIABLE, field.name, why)


def _help() -> str:
    lines = [f"Flags of {_VARIABLE}, as --name or --name=value:"]
    for field in dataclasses.fields(PoplarFlags):
        default: Any = field.default
        shown = "" if default == () else default
        lines.append(f"  --{field.name}  {field.metadata['doc']} (default: {shown!r})")
    return "\n".join(lines)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as broken:
        raise FlagError(f"{_VARIABLE} holds {text!r}, which cannot be split: {broken}") from None
    for word in words:
        # absl would act on these two itself: read a file, or let an unknown flag pass.
        name = word.lstrip("-").partition("=")[0]
        if name in ("flagfile", "undefok"):
            raise FlagError(_unknown(name))
    return words


def _definitions() -> absl_flags.FlagValues:
    values = absl_flags.FlagValues()
    for field in dataclasses.fields(PoplarFlags):
        default: Any = field.default
        define = _DEFINE[type(default)]
        initial: Any = [] if default == () else default
        define(field.name, initial, field.metadata["doc"], flag_values=values)
    return values


_DEFINE: dict[type, Any] = {
    bool: absl_flags.DEFINE_boolean,
    int: absl_flags.DEFINE_integer,
    str: absl_flags.DEFINE_string,
    tuple: absl_flags.DEFINE_list,
}


def _categories(names: list[str]) -> tuple[str, ...]:
    known = [category.name.lower() for category in SyntheticDataCategory]
    for name in names:
        if name.lower() not in known:
            raise FlagError(
                f"--synthetic_data_categories names {name!r}{_did_you_mean(name.lower(), known)}; "
                f"the categories are {', '.join(known)}"
            )
    return tuple(name.lower() for name in names)


def _check(flags: PoplarFlags) -> None:
    synthetic = flags.use_synthetic_data or flags.synthetic_data_categories
    initializer = flags.synthetic_data_initializer
    if initializer and not synthetic:
        raise FlagError(
            "--synthetic_data_initializer needs synthetic data: add --use_synthetic_data or "
            "--synthetic_data_categories"
        )
    named = initializer in ("", "random", "uniform", "normal")
    if not named and not re.fullmatch(r"[+-]?\d+", initializer):
        raise FlagError(
            f"--synthetic_data_initializer={initializer} is neither random, uniform, normal nor "
            "an integer"
        )
    if flags.show_progress_bar not in ("auto", "true", "false"):
        raise FlagError(
            f"--show_progress_bar={flags.show_progress_bar} is neither auto, true nor false"
        )


def _unknown(name: str) -> str:
    known = [field.name for field in dataclasses.fields(PoplarFlags)]
    return f"{_VARIABLE} holds the unknown flag --{name}{_did_you_mean(name, known, '--')}"


def _did_you_mean(name: str, known: list[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""
