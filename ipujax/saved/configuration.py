"""The options that a program was compiled with, as JSON, and back."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ipujax.errors import ExecutableError
from ipujax.saved.values import Json, decode, encode
from ipujax.system.config_schema import Option, walk
from ipujax.system.options import SystemOptions

# What belongs to the process that runs a program, and not to the program: no file says where to
# write others.
_OF_THE_PROCESS = ("device_connection.", "serialization_output_folder")


def encode_options(config: SystemOptions) -> Json:
    """The options that are not as by default, by their full names."""
    return {
        name: encode(value, f"the option {name}")
        for name, option, value in _options_of(config)
        if value != option.default
    }


def decode_options(written: Mapping[str, Json]) -> SystemOptions:
    """A configuration of the options that `encode_options` wrote.

    Raises:
      ExecutableError: a name that is no option of a program's.
      ConfigError: (a `ValueError`) a value that an option cannot have.
    """
    config = SystemOptions()
    known = {name for name, _, _ in _options_of(config)}
    for name, value in written.items():
        if name not in known:
            raise ExecutableError(f"its configuration has {name!r:.100}, no option of a program's")
        *categories, last = name.split(".")
        setattr(functools.reduce(getattr, categories, config), last, decode(value))
    return config


def _options_of(config: SystemOptions) -> Iterator[tuple[str, Option, Any]]:
    for name, member, value in walk(config):
        if isinstance(member, Option) and not name.startswith(_OF_THE_PROCESS):
            yield name, member, value
