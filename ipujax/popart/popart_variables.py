"""The settings of which replicas share a weight, and which of their values are read."""

from __future__ import annotations

import dataclasses as dc
import enum

from ipujax.ground import check_attributes
from ipujax.popart.numbered_enum import NumberedEnum
from ipujax.popart.popart_checks import check


class CommGroupType(enum.IntEnum):
    """The choice of which replicas form a group of k, where N = k * m replicas make groups.

    `All` of them; `Consecutive` ones, {0 .. k-1}, {k .. 2k-1} ..; `Orthogonal` ones, {0, m, 2m ..},
    {1, m+1 ..} ..; or each by itself (`Ungrouped`).
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2
    Ungrouped = 3


class VariableRetrievalMode(NumberedEnum):
    """The choice of which replicas' values of a weight are read: one per group, sum, or all."""

    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


@check.guard
@check_attributes(check)
@dc.dataclass
class CommGroup:
    """The kind and size of groups of replicas; `All` and `Ungrouped` need no size."""

    type: CommGroupType = CommGroupType.All
    replicaGroupSize: int = 0


@check.guard
class VariableSettings:
    """The groups of replicas that share a weight, and which of their values are read.

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
        self._domain: CommGroup = check.require_instance(domain, CommGroup, "sharedVariableDomain_")
        self._mode: VariableRetrievalMode = check.require_instance(
            retrievalMode_, VariableRetrievalMode, "retrievalMode_"
        )

    def getSharedVariableDomain(self) -> CommGroup:
        """Returns the groups of replicas that share a weight."""
        return self._domain

    def getRetrievalMode(self) -> VariableRetrievalMode:
        """Returns which replicas' values are read."""
        return self._mode

    def getGroupCount(self, replicaCount: int) -> int:
        """Returns the number of groups that some number of replicas make.

        Raises:
          PopARTError: (a `ValueError`) groups of a size that does not divide them.
        """
        count = check.require_integer(replicaCount, "replicaCount", at_least=1)
        fixed_sizes = {CommGroupType.All: count, CommGroupType.Ungrouped: 1}
        size = fixed_sizes.get(self._domain.type, self._domain.replicaGroupSize)
        if size < 1 or count % size:
            raise check.value_error(
                f"{count} replicas are no groups of {size}", "give a size that divides them"
            )
        return count // size

    def numReplicasReturningVariable(self, replicaCount: int) -> int:
        """Returns the number of values of a weight that are read; raises as `getGroupCount`."""
        groups = self.getGroupCount(replicaCount)
        return {
            VariableRetrievalMode.OnePerGroup: groups,
            VariableRetrievalMode.AllReduceReplicas: 1,
            VariableRetrievalMode.AllReplicas: replicaCount,
        }[self._mode]

    def check_all_share(self) -> None:
        """Checks that all replicas share the weight, and that it is read once.

        Raises:
          PopARTError: (a `ValueError`) groups of replicas, or another mode.
        """
        if self._domain.type is not CommGroupType.All:
            raise check.value_error(
                f"VariableSettings: groups of replicas ({self._domain.type.name}) share a weight",
                "let all replicas share them: VariableSettings()",
            )
        if self._mode is not VariableRetrievalMode.OnePerGroup:
            raise check.value_error(
                f"VariableSettings: the retrieval mode {self._mode.name} is missing",
                "use VariableRetrievalMode.OnePerGroup: all replicas have the same values",
            )
