"""`TF_POPLAR_FLAGS`: the flags that a user sets for a run in the environment.

The names and defaults are those of fact `devices.flags`. The flags are parsed by absl, but into a
`FlagValues` of their own, so that they never meet a program's flags. The environment is read on
every call and parsed when it has changed.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import re
import shlex
from collections.abc import Callable

from absl import flags as absl_flags

from ipujax.ground import FlagError, suggest_closest_name
from ipujax.system.config_schema import parse_class_docstring
from ipujax.system.log import get_logger

VARIABLE = "TF_POPLAR_FLAGS"


class SyntheticDataCategory(enum.Enum):
    """The kinds of data that can be synthetic: made on the device, not sent by the host."""

    Seed = 0
    Infeed = 1
    Outfeed = 2
    HostEmbedding = 3
    Parameters = 4


# Flags whose values are part of an executable's key.
_IN_KEY = (
    "use_synthetic_data",
    "synthetic_data_categories",
    "synthetic_data_initializer",
    "use_ipu_model",
    "log_cycle_count",
    "while_loop_brute_force_max_trip_count",
    "fallback_scheduler",
    "sync_replica_start",
    "allow_nans",
)

# Reasons why some flags have no effect here; setting one logs its reason.
_INERT = {
    "while_loop_brute_force_max_trip_count": "XLA decides",
    "max_compilation_threads": "XLA decides",
    "max_infeed_threads": "each loop reads each infeed in one thread",
    "save_vertex_graph": "there is no Poplar compiler behind virtual IPUs",
    "save_interval_report": "there is no Poplar compiler behind virtual IPUs",
    "dump_schedule_as_dot": "there is no Poplar compiler behind virtual IPUs",
    "fallback_scheduler": "XLA decides",
    "show_progress_bar": "compilation is not shown as a bar",
    "on_demand_device_poll_time": "virtual IPUs are never busy",
    "on_demand_device_timeout": "virtual IPUs are never busy",
    "sync_replica_start": "replicas of one run always start together",
    "enable_hlo_verifier": "programs are always verified",
    "allow_nans": "values may always be NaNs",
}

# Deprecated flags, which never had an effect, and a value of each flag's type.
_DEPRECATED: dict[str, bool | str] = {
    "add_all_reduce_copies": False,
    "force_replicated_mode": False,
    "save_oom_profiler": "",
    "dump_text_reports_to_stdio": False,
}


@dataclasses.dataclass(frozen=True)
class PoplarFlags:
    """The flags in force; every field is a flag of the same name.

    Attributes:
      help: Print the flags and go on.
      use_synthetic_data: Exchange no data with the host: make all of it up on the device.
      synthetic_data_categories: Make up only these kinds of data: a comma-separated list of seed,
        infeed, outfeed, hostembedding, parameters.
      synthetic_data_initializer: What made-up data holds: random, uniform, normal, or an integer;
        zeros if not given.
      use_ipu_model: Run on the IPU Model instead of IPUs.
      log_cycle_count: Log the modelled cycles of each run on the device with this ordinal; -1:
        never.
      while_loop_brute_force_max_trip_count: How many iterations to try when looking for a loop's
        trip count.
      max_compilation_threads: Threads that compile; -1: no limit.
      max_infeed_threads: Threads that feed a queue; -1: no limit.
      save_vertex_graph: Directory for the vertex graph of each program.
      save_interval_report: Directory for the interval report of each program.
      executable_cache_path: Directory in which compiled programs are kept; created if need be.
      dump_schedule_as_dot: Write the schedule as a DOT file.
      tensor_map_file_path: Directory for the tile mapping of each program, `NAME.tensor_map.json`;
        made if need be.
      null_data_feed: Feed infeeds with zeros, without reading their data sets.
      fallback_scheduler: Use the simple scheduler when the best order is too slow to find.
      show_progress_bar: Show progress while compiling: auto, true, false.
      on_demand_device_poll_time: How often to try to attach on demand, in milliseconds; less than
        100 counts as 100.
      on_demand_device_timeout: How long to try to attach on demand, in milliseconds.
      sync_replica_start: Start all replicas together.
      enable_hlo_verifier: Check the program after every pass.
      allow_nans: Do not assume that values are no NaNs.
    """

    help: bool = False
    use_synthetic_data: bool = False
    synthetic_data_categories: tuple[str, ...] = ()
    synthetic_data_initializer: str = ""
    use_ipu_model: bool = False
    log_cycle_count: int = -1
    while_loop_brute_force_max_trip_count: int = 128
    max_compilation_threads: int = -1
    max_infeed_threads: int = -1
    save_vertex_graph: str = ""
    save_interval_report: str = ""
    executable_cache_path: str = ""
    dump_schedule_as_dot: bool = False
    tensor_map_file_path: str = ""
    null_data_feed: bool = False
    fallback_scheduler: bool = False
    show_progress_bar: str = "auto"
    on_demand_device_poll_time: int = 1000
    on_demand_device_timeout: int = 3_600_000
    sync_replica_start: bool = False
    enable_hlo_verifier: bool = False
    allow_nans: bool = False

    def is_synthetic(self, category: SyntheticDataCategory) -> bool:
        """Returns whether data of a category is made up on the device."""
        return self.use_synthetic_data or category.name.lower() in self.synthetic_data_categories

    @property
    def synthetic_category_names(self) -> frozenset[str]:
        """The categories of data that are made up on the device, as flags spell them."""
        return frozenset(
            category.name.lower()
            for category in SyntheticDataCategory
            if self.is_synthetic(category)
        )


def read_poplar_flags() -> PoplarFlags:
    """Reads the flags that `TF_POPLAR_FLAGS` holds now.

    Raises:
      FlagError: if it holds an unknown flag, a value that its flag does not take, or
        `--synthetic_data_initializer` without synthetic data.
    """
    return _parse_flags(os.environ.get(VARIABLE, ""))


def executable_flags_key() -> tuple[object, ...]:
    """Returns the flags that are part of an executable's key (fact `devices.flags_hash`)."""
    flags = read_poplar_flags()
    return tuple(getattr(flags, name) for name in _IN_KEY)


@functools.lru_cache(maxsize=8)
def _parse_flags(text: str) -> PoplarFlags:
    values = _define_flags()
    try:
        positional_words = values(["ipujax", *_split_flag_words(text)])[1:]
    except absl_flags.UnrecognizedFlagError as error:
        raise FlagError(_unknown_flag_message(error.flagname)) from None
    except absl_flags.Error as error:
        raise FlagError(f"{VARIABLE} holds {text!r}: {error}") from None
    if positional_words:
        raise FlagError(
            f"{VARIABLE} holds {positional_words[0]!r}, which is no flag; flags are written --name "
            "or --name=value, with blanks between them"
        )
    value_of_flag = values.flag_values_dict()
    for name in _DEPRECATED:
        del value_of_flag[name]
        if values[name].present:
            get_logger().warning("%s: --%s is deprecated and has no effect", VARIABLE, name)
    value_of_flag["synthetic_data_categories"] = _check_synthetic_categories(
        value_of_flag["synthetic_data_categories"]
    )
    value_of_flag["on_demand_device_poll_time"] = max(
        100, value_of_flag["on_demand_device_poll_time"]
    )
    flags = PoplarFlags(**value_of_flag)
    _check_flag_values(flags)
    for name, reason in _INERT.items():
        if values[name].present:
            get_logger().warning("%s: --%s has no effect: %s", VARIABLE, name, reason)
    if flags.help:
        print(_format_flags_help())
    return flags


def _format_flags_help() -> str:
    lines = [f"Flags of {VARIABLE}, as --name or --name=value:"]
    _, docs = parse_class_docstring(PoplarFlags)
    for name, default in _DEFAULTS.items():
        default_text = "" if default == () else default
        lines.append(f"  --{name}  {docs.get(name, '')} (default: {default_text!r})")
    return "\n".join(lines)


def _split_flag_words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise FlagError(f"{VARIABLE} holds {text!r}, which cannot be split: {error}") from None
    for word in words:
        # absl would act on these two itself: read a file, or let an unknown flag pass.
        name = word.lstrip("-").partition("=")[0]
        if name in ("flagfile", "undefok"):
            raise FlagError(_unknown_flag_message(name))
    return words


def _define_flags() -> absl_flags.FlagValues:
    values = absl_flags.FlagValues()
    for name, default in (*_DEFAULTS.items(), *_DEPRECATED.items()):
        _DEFINE[type(default)](name, default, None, flag_values=values)
    return values


_DEFAULTS = dataclasses.asdict(PoplarFlags())
_DEFINE: dict[type, Callable[..., object]] = {
    bool: absl_flags.DEFINE_boolean,
    int: absl_flags.DEFINE_integer,
    str: absl_flags.DEFINE_string,
    tuple: absl_flags.DEFINE_list,
}


def _check_synthetic_categories(names: list[str]) -> tuple[str, ...]:
    category_names = [category.name.lower() for category in SyntheticDataCategory]
    for name in names:
        if name.lower() not in category_names:
            suggestion = suggest_closest_name(name.lower(), category_names, "{}")
            raise FlagError(
                f"--synthetic_data_categories names {name!r}{suggestion}; the categories are "
                f"{', '.join(category_names)}"
            )
    return tuple(name.lower() for name in names)


def _check_flag_values(flags: PoplarFlags) -> None:
    has_synthetic_data = flags.use_synthetic_data or flags.synthetic_data_categories
    initializer = flags.synthetic_data_initializer
    if initializer and not has_synthetic_data:
        raise FlagError(
            "--synthetic_data_initializer needs synthetic data: add --use_synthetic_data or "
            "--synthetic_data_categories"
        )
    is_named = initializer in ("", "random", "uniform", "normal")
    if not is_named and not re.fullmatch(r"[+-]?\d+", initializer):
        raise FlagError(
            f"--synthetic_data_initializer={initializer} is neither random, uniform, normal nor "
            "an integer"
        )
    if flags.log_cycle_count < -1:
        raise FlagError(
            f"--log_cycle_count={flags.log_cycle_count} must be the ordinal of a device, or -1"
        )
    if flags.show_progress_bar not in ("auto", "true", "false"):
        raise FlagError(
            f"--show_progress_bar={flags.show_progress_bar} is neither auto, true nor false"
        )


def _unknown_flag_message(name: str) -> str:
    suggestion = suggest_closest_name(name, _DEFAULTS, "--{}")
    return f"{VARIABLE} holds the unknown flag --{name}{suggestion}"
