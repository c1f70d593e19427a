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
}
"""Variables of the environment by fields."""


@dc.dataclass(frozen=True)
class Instance:
    """A process among those that run a program together.

    Attributes:
      index: which it is, from 0.
      count: how many there are.
      replicas: of all of them together.
      ipus_per_replica: virtual IPUs of a replica.
      coordinator: address and port where they meet.
    """

    index: int = 0
    count: int = 1
    replicas: int = 1
    ipus_per_replica: int = 1
    coordinator: str = ""

    @property
    def local_replicas(self) -> int:
        """Those that run in this process."""
        return self.replicas // self.count

    def environment(self) -> dict[str, str]:
        """Variables by which the process is told all this."""
        return {name: str(getattr(self, field)) for field, name in _VARIABLES.items()}


def told(environment: Mapping[str, str] = os.environ) -> Instance | None:
    """What a launcher has told this process; None if no launcher has started it.

    Raises:
      DistributionError: (a `ValueError`) variables that are missing or are no numbers.
    """
    given = {field: environment.get(name) for field, name in _VARIABLES.items()}
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
