"""The instance that a process is: its number, the others' count, and the replicas of all."""

from __future__ import annotations

import dataclasses as dc
import os
from collections.abc import Mapping

from ipujax.ground.errors import DistributionError

_VARIABLES = {
    "index": "POPDIST_INSTANCE_INDEX",
    "count": "POPDIST_NUM_INSTANCES",
    "replicas": "POPDIST_NUM_TOTAL_REPLICAS",
    "ipus_per_replica": "POPDIST_NUM_IPUS_PER_REPLICA",
    "coordinator": "IPUJAX_COORDINATOR",
    "spread": "IPUJAX_SPREAD",
}
"""The environment variable of each field of `Instance`."""
SPREADS = ("replicas", "ipus")
"""The units that are divided among the processes: whole replicas, or the IPUs of each."""


@dc.dataclass(frozen=True)
class Instance:
    """A process among those that run a program together.

    Attributes:
      index: the number of the process, from 0.
      count: the number of processes.
      replicas: the replicas of all processes together.
      ipus_per_replica: virtual IPUs of a replica.
      coordinator: the address and port at which they connect.
      spread: the units that are divided among the processes, one of `SPREADS`.
    """

    index: int = 0
    count: int = 1
    replicas: int = 1
    ipus_per_replica: int = 1
    coordinator: str = ""
    spread: str = "replicas"

    @property
    def local_replicas(self) -> int:
        """The number of replicas that run in this process, or have IPUs there."""
        return self.replicas // self.num_replica_groups

    @property
    def num_replica_groups(self) -> int:
        """The number of groups of replicas; one, if each process has a part of all replicas."""
        return self.count if self.spread == "replicas" else 1

    @property
    def replica_group_index(self) -> int:
        """The index of this process's group of replicas."""
        return self.index if self.spread == "replicas" else 0

    def describe_local_replicas(self) -> str:
        """Describes the replicas or IPUs of this process."""
        if self.spread == "ipus":
            total, ipus = self.ipus_per_replica, range(self.ipus_per_replica)
            local_ipus = [ipu for ipu in ipus if ipu * self.count // total == self.index]
            suffix = (
                f"of {_format_count(self.replicas, 'replica')} of {_format_count(total, 'IPU')}"
            )
            return (
                f"{_format_index_range('IPU', local_ipus[0], local_ipus[-1])} {suffix}"
                if local_ipus
                else f"no IPU {suffix}"
            )
        first = self.index * self.local_replicas
        last = first + self.local_replicas - 1
        return (
            f"{_format_index_range('replica', first, last)} of "
            f"{_format_count(self.ipus_per_replica, 'IPU')}"
        )

    def environment_variables(self) -> dict[str, str]:
        """Returns the environment variables that describe the instance."""
        return {name: str(getattr(self, field)) for field, name in _VARIABLES.items()}


ALONE = Instance()
"""The instance of a process without others."""


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


def _format_index_range(noun: str, first: int, last: int) -> str:
    return f"{noun} {first}" if first == last else f"{noun}s {first} to {last}"


def read_spread(environment: Mapping[str, str]) -> str:
    """Reads the units that are divided among the processes from the environment.

    Raises:
      DistributionError: (a `ValueError`) another value.
    """
    spread = environment.get(_VARIABLES["spread"], "replicas")
    if spread not in SPREADS:
        raise DistributionError(
            f"{_VARIABLES['spread']} is {spread!r} in the environment of this process",
            fix=f"set it to one of {', '.join(SPREADS)}, or unset it",
        )
    return spread


def read_launched_instance(environment: Mapping[str, str] = os.environ) -> Instance | None:
    """Reads the instance that a launcher has put into the environment; None without one.

    Raises:
      DistributionError: (a `ValueError`) variables that are missing or are no numbers.
    """
    text_of_field = {field: environment.get(name) for field, name in _VARIABLES.items()}
    text_of_field["spread"] = read_spread(environment)
    if text_of_field["coordinator"] is None:
        return None
    values: dict[str, int | str] = {}
    for field in dc.fields(Instance):
        text = text_of_field[field.name]
        is_number = isinstance(field.default, int)
        if text is None or (is_number and not text.isdecimal()):
            raise DistributionError(
                f"{_VARIABLES[field.name]} is {text!r} in the environment of this process",
                fix="start it by ipurun, which sets it, or unset IPUJAX_COORDINATOR",
            )
        values[field.name] = int(text) if is_number else text
    return Instance(**values)  # pyright: ignore[reportArgumentType]
