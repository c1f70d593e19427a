"""`SessionOptions`: what acts, what is accepted, and what is refused by name."""

from __future__ import annotations

import difflib
from typing import Any

from ipujax.popart.checks import check
from ipujax.popart.options.kinds import (
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)

_ACTING: dict[str, Any] = {
    "accumulationFactor": 1,
    "accumulationAndReplicationReductionType": ReductionType.Sum,
    "cachePath": "session_cache",
    "constantWeights": True,
    "enableEngineCaching": False,
    "enableGradientAccumulation": False,
    "enablePipelining": False,
    "enableReplicatedGraphs": False,
    "replicatedGraphCount": 1,
    "virtualGraphMode": VirtualGraphMode.Off,
}

_WITHOUT_MEANING: dict[str, Any] = {
    "aliasZeroCopy": False,
    "enableOutlining": True,
    "enableOutliningCopyCostPruning": True,
    "logDir": "",
    "opxAliasChecking": False,
    "opxModifyChecking": False,
    "outlineThreshold": 1.0,
    "strictOpVersions": True,
    "subgraphCopyingStrategy": SubgraphCopyingStrategy.OnEnterAndExit,
}

_REFUSED: dict[str, Any] = {
    "enableDistributedReplicatedGraphs": False,
    "autoRecomputation": RecomputationType.NoRecompute,
    "syntheticDataMode": SyntheticDataMode.Off,
}


class SessionOptions:
    """Options of a session, attributes with the original's names and defaults.

    These act: accumulationFactor with enableGradientAccumulation, replicatedGraphCount with
    enableReplicatedGraphs, accumulationAndReplicationReductionType, enablePipelining,
    virtualGraphMode, constantWeights, cachePath with enableEngineCaching.

    Raises:
      AttributeError: an option that there is not.
    """

    def __init__(self) -> None:
        for name, value in (_ACTING | _WITHOUT_MEANING | _REFUSED).items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            near = difflib.get_close_matches(name, self.__dict__, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AttributeError(f"SessionOptions has no option {name!r}{hint}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"SessionOptions has no option {name!r}")

    def check(self) -> None:
        """Refuses what cannot be done.

        Raises:
          PopARTError: (a `ValueError`) it names the option.
        """
        for name, default in _REFUSED.items():
            if getattr(self, name) != default:
                raise check.refuse(
                    f"SessionOptions.{name} = {getattr(self, name)!r} cannot be done here",
                    f"leave it at {default!r}",
                )

    @property
    def accumulation(self) -> int:
        """Micro-batches in a weight update."""
        if not self.enableGradientAccumulation:
            return 1
        return check.integer(self.accumulationFactor, "accumulationFactor", at_least=1)

    @property
    def replicas(self) -> int:
        """How many replicas there are."""
        if not self.enableReplicatedGraphs:
            return 1
        return check.integer(self.replicatedGraphCount, "replicatedGraphCount", at_least=1)
