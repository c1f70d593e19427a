"""Which replicas share a weight, and which of their values are read."""

from __future__ import annotations

import dataclasses as dc
import enum

from ipujax.checks.attributes import check_attributes
from ipujax.popart.checks import check
from ipujax.popart.numbered import NumberedEnum


class CommGroupType(enum.IntEnum):
    """Which replicas are a group, where groups have k of N = k * m replicas.

    `All` of them; `Consecutive` ones, {0 .. k-1}, {k .. 2k-1} ..; `Orthogonal` ones, {0, m, 2m ..},
    {1, m+1 ..} ..; or each by itself (`Ungrouped`).
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2
    Ungrouped = 3


class VariableRetrievalMode(NumberedEnum):
    """Which replicas' values of a weight are read: one of each group, their sum, or all."""

    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


@check.guard
@check_attributes(check)
@dc.dataclass
class CommGroup:
    """Groups of replicas; how many there are in one does not count for `All` and `Ungrouped`."""

    type: CommGroupType = CommGroupType.All
    replicaGroupSize: int = 0


@check.guard
class VariableSettings:
    """Which replicas share a weight, and which of their values are read.

    Called as `VariableSettings(CommGroup(), VariableRetrievalMode.OnePerGroup)`, either of which
    can be left out. `Builder.addInitializedInputTensor` takes the default alone: all replicas share
    a weight, and it is read once.

    Args:
      sharedVariableDomain_: the groups, or the mode.
      retrievalMode_: the mode.
    """

    def __init__(
        self,
        sharedVariableDomain_: CommGroup | VariableRetrievalMode | None = None,
        retrievalMode_: VariableRetrievalMode = VariableRetrievalMode.OnePerGroup,
    ):
        if isinstance(sharedVariableDomain_, VariableRetrievalMode):
            sharedVariableDomain_, retrievalMode_ = None, sharedVariableDomain_
        domain = CommGroup() if sharedVariableDomain_ is None else sharedVariableDomain_
        self._domain: CommGroup = check.instance(domain, CommGroup, "sharedVariableDomain_")
        self._mode: VariableRetrievalMode = check.instance(
            retrievalMode_, VariableRetrievalMode, "retrievalMode_"
        )

    def getSharedVariableDomain(self) -> CommGroup:
        """The groups."""
        return self._domain

    def getRetrievalMode(self) -> VariableRetrievalMode:
        """Which values are read."""
        return self._mode

    def getGroupCount(self, replicaCount: int) -> int:
        """How many groups so many replicas are.

        Raises:
          PopARTError: (a `ValueError`) groups of a size that does not divide them.
        """
        count = check.integer(replicaCount, "replicaCount", at_least=1)
        alone = {CommGroupType.All: count, CommGroupType.Ungrouped: 1}
        size = alone.get(self._domain.type, self._domain.replicaGroupSize)
        if size < 1 or count % size:
            raise check.refuse(
                f"{count} replicas are no groups of {size}", "give a size that divides them"
            )
        return count // size

    def numReplicasReturningVariable(self, replicaCount: int) -> int:
        """How many values of a weight are read; errors as for `getGroupCount`."""
        groups = self.getGroupCount(replicaCount)
        return {
            VariableRetrievalMode.OnePerGroup: groups,
            VariableRetrievalMode.AllReduceReplicas: 1,
            VariableRetrievalMode.AllReplicas: replicaCount,
        }[self._mode]

    def check(self) -> None:
        """Raises for what is no default.

        Raises:
          PopARTError: (a `ValueError`) groups of replicas, or another mode.
        """
        if self._domain.type is not CommGroupType.All:
            raise check.refuse(
                f"VariableSettings: groups of replicas ({self._domain.type.name}) share a weight",
                "let all replicas share them: VariableSettings()",
            )
        if self._mode is not VariableRetrievalMode.OnePerGroup:
            raise check.refuse(
                f"VariableSettings: the retrieval mode {self._mode.name}",
                "use VariableRetrievalMode.OnePerGroup: all replicas have the same values",
            )
