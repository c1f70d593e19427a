"""The enumerations of configuration attributes; `ipujax.config` re-exports them."""

from __future__ import annotations

import enum

from ipujax.ground import ConfigNotImplementedError


class DeviceConnectionType(enum.Enum):
    """The times at which a logical device attaches to its IPUs.

    Attributes:
      ALWAYS: while the system is configured.
      ON_DEMAND: at the first run, so that compiling needs no IPU.
      NEVER: not at all; programs compile, and running one is an error.
      PRE_COMPILE: not at all; programs compile, and running one gives zeros. Meant for filling
        an executable cache on a machine without IPUs.
    """

    ALWAYS = 0
    ON_DEMAND = 1
    NEVER = 2
    PRE_COMPILE = 3


class ExecutionProfileType(enum.Enum):
    """The granularity of an execution profile.

    Attributes:
      NO_PROFILE: nothing is profiled.
      DEVICE_PROFILE: events of the device as a whole.
      IPU_PROFILE: events of each IPU.
      TILE_PROFILE: events of each tile.
    """

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class MergeRemoteBuffersBehaviour(enum.Enum):
    """The policy for merging remote buffers of one shape and type, which then share code.

    Attributes:
      NO_MERGING: every buffer stays apart.
      MERGE: all that can be merged are.
      IF_BENEFICIAL: those are merged whose merging lets code be used twice.
    """

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(enum.Enum):
    """The algorithm that orders operations.

    The original's five are two here: POST_ORDER leaves operations as the function has them, and
    each of the others stands for one order that keeps little alive, found without a search.

    Attributes:
      CHOOSE_BEST: try the others and keep the order with the lowest predicted peak of memory.
      CLUSTERING: keep together clusters of operations between which little is live.
      POST_ORDER: walk the graph in post order.
      LOOK_AHEAD: search a few operations ahead of each choice (see `scheduling`'s two limits).
      SHORTEST_PATH: prefer the operation with the shortest way to the root.
    """

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class StochasticRoundingBehaviour(enum.Enum):
    """The operations that round stochastically, as later releases of the original name them.

    Attributes:
      OFF: none; as False.
      ON: all; as True.
      REPLICA_IDENTICAL_ONLY: those alone that give all replicas the same, which is refused here.
    """

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @staticmethod
    def from_bool(value: bool) -> StochasticRoundingBehaviour:
        """Returns ON or OFF."""
        return StochasticRoundingBehaviour.ON if value else StochasticRoundingBehaviour.OFF

    @staticmethod
    def to_bool_if_member(value: object) -> object:
        """Returns True for ON, False for OFF, and what is no member as it is.

        Raises:
          ConfigNotImplementedError: (a `NotImplementedError`) REPLICA_IDENTICAL_ONLY.
        """
        if not isinstance(value, StochasticRoundingBehaviour):
            return value
        if value is StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY:
            raise ConfigNotImplementedError(
                "stochastic rounding of REPLICA_IDENTICAL_ONLY is not there: replicas round by "
                "random numbers of their own, or not at all",
                fix="use StochasticRoundingBehaviour.ON or OFF, and scopes.stochastic_rounding "
                "around what is to differ",
            )
        return value is StochasticRoundingBehaviour.ON


class SelectionOrder(enum.Enum):
    """The order in which a multi-IPU device's IPUs become shards.

    IPUs form a ladder: 0 and 1 share the first rung, 2 and 3 the second; neighbours on a rung and
    neighbours along a rail are linked.

    Attributes:
      AUTO: chosen for the system; here the same as `SNAKE`.
      ZIGZAG: as numbered: 0, 1, 2, 3, 4, 5, 6, 7.
      SNAKE: each shard is linked to the next one: 0, 1, 3, 2, 4, 5, 7, 6.
      HOOF: up one rail and down the other, so that the last shard is linked to the first as well:
        0, 2, 4, 6, 7, 5, 3, 1.
    """

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3
