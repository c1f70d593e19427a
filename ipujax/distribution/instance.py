"""What a process knows of itself among those that run a program together."""

from __future__ import annotations

import dataclasses as dc
import os
from collections.abc import Mapping

from ipujax.errors import DistributionError

_VARIABLES = {
    "index": "POPDIST_INSTANCE_INDEX",
    "count": "POPDIST_NUM_INSTANCES",
    "replicas": "POPDIST_NUM_TOTAL_REPLICAS",
    "ipus_per_replica": "POPDIST_NUM_IPUS_PER_REPLICA",
    "coordinator": "IPUJAX_COORDINATOR",
    "spread": "IPUJAX_SPREAD",
}
"""Variables of the environment by fields."""
SPREADS = ("replicas", "ipus")
"""What is dealt to the processes: whole replicas, or the IPUs of each."""


@dc.dataclass(frozen=True)
class Instance:
    """A process among those that run a program together.

    Attributes:
      index: which it is, from 0.
      count: how many there are.
      replicas: of all of them together.
      ipus_per_replica: virtual IPUs of a replica.
      coordinator: address and port where they meet.
      spread: what is dealt to the processes, one of `SPREADS`.
    """

    index: int = 0
    count: int = 1
    replicas: int = 1
    ipus_per_replica: int = 1
    coordinator: str = ""
    spread: str = "replicas"

    @property
    def local_replicas(self) -> int:
        """Those that run in this process, or have IPUs there."""
        return self.replicas // self.shares_of_replicas

    @property
    def shares_of_replicas(self) -> int:
        """To how many processes the replicas are dealt; one, where each has a part of them all."""
        return self.count if self.spread == "replicas" else 1

    @property
    def share_of_replicas(self) -> int:
        """Which of the shares of replicas this process has."""
        return self.index if self.spread == "replicas" else 0

    def describe(self) -> str:
        """What of the program runs in this process."""
        if self.spread == "ipus":
            total, shares = self.ipus_per_replica, range(self.ipus_per_replica)
            own = [ipu for ipu in shares if ipu * self.count // total == self.index]
            of = f"of {_count(self.replicas, 'replica')} of {_count(total, 'IPU')}"
            return f"{_range('IPU', own[0], own[-1])} {of}" if own else f"no IPU {of}"
        first = self.index * self.local_replicas
        last = first + self.local_replicas - 1
        return f"{_range('replica', first, last)} of {_count(self.ipus_per_replica, 'IPU')}"

    def environment(self) -> dict[str, str]:
        """Variables by which the process is told all this."""
        return {name: str(getattr(self, field)) for field, name in _VARIABLES.items()}


ALONE = Instance()
"""A process without others."""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


def _range(noun: str, first: int, last: int) -> str:
    return f"{noun} {first}" if first == last else f"{noun}s {first} to {last}"


def spread_of(environment: Mapping[str, str]) -> str:
    """What is dealt to the processes.

    Raises:
      DistributionError: (a `ValueError`) something else.
    """
    spread = environment.get(_VARIABLES["spread"], "replicas")
    if spread not in SPREADS:
        raise DistributionError(
            f"{_VARIABLES['spread']} is {spread!r} in the environment of this process",
            fix=f"set it to one of {', '.join(SPREADS)}, or unset it",
        )
    return spread


def told(environment: Mapping[str, str] = os.environ) -> Instance | None:
    """What a launcher has told this process; None if no launcher has started it.

    Raises:
      DistributionError: (a `ValueError`) variables that are missing or are no numbers.
    """
    given = {field: environment.get(name) for field, name in _VARIABLES.items()}
    given["spread"] = spread_of(environment)
    if given["coordinator"] is None:
        return None
    values: dict[str, int | str] = {}
    for field in dc.fields(Instance):
        text = given[field.name]
        is_number = isinstance(field.default, int)
        if text is None or (is_number and not text.isdecimal()):
            raise DistributionError(
                f"{_VARIABLES[field.name]} is {text!r} in the environment of this process",
                fix="start it by ipurun, which sets it, or unset IPUJAX_COORDINATOR",
            )
        values[field.name] = int(text) if is_number else text
    return Instance(**values)  # pyright: ignore[reportArgumentType]
