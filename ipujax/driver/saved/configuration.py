"""Encodes the options that a program was compiled with as JSON, and decodes them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ipujax.driver.saved.encoded_values import decode_value, encode_value
from ipujax.ground import ExecutableError, Json
from ipujax.system import Option, SystemOptions, walk_options

# Options of the process that runs a program, not of the program: no file may set where to
# write others.
_PROCESS_OPTIONS = ("device_connection.", "serialization_output_folder")


def encode_options(config: SystemOptions) -> Json:
    """Encodes the options that differ from their defaults, by their full names."""
    return {
        name: encode_value(value, f"the option {name}")
        for name, option, value in _list_program_options(config)
        if value != option.default
    }


def decode_options(encoded_options: Mapping[str, Json]) -> SystemOptions:
    """Builds a configuration from the options that `encode_options` wrote.

    Raises:
      ExecutableError: a name that is no option of a program's.
      ConfigError: (a `ValueError`) a value that an option cannot have.
    """
    config = SystemOptions()
    option_names = {name for name, _, _ in _list_program_options(config)}
    for name, value in encoded_options.items():
        if name not in option_names:
            raise ExecutableError(f"its configuration has {name!r:.100}, no option of a program's")
        *categories, last = name.split(".")
        setattr(functools.reduce(getattr, categories, config), last, decode_value(value))
    return config


def _list_program_options(config: SystemOptions) -> Iterator[tuple[str, Option, Any]]:
    for name, member, value in walk_options(config):
        if isinstance(member, Option) and not name.startswith(_PROCESS_OPTIONS):
            yield name, member, value
