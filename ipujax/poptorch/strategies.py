"""The strategies of `Options.setExecutionStrategy`: how blocks become stages on IPUs."""

# Stages, strategies and places are parts of one mechanism and look into one another.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable
from typing import Any

from ipujax.ground import Keywords
from ipujax.poptorch.enums import AutoStage
from ipujax.poptorch.poptorch_checks import check

BlockId = str


@check.guard
class Stage:
    """A pipeline stage: one or several blocks that run on one IPU."""

    def __init__(self, *block_ids: BlockId):
        for block in block_ids:
            check.require_text(block, "a block of a Stage")
        self._blocks = block_ids
        self._stage_id = -1
        self._ipu: int | None = None

    @property
    def blocks(self) -> tuple[BlockId, ...]:
        """The names of the stage's blocks."""
        return self._blocks

    def ipu(self, ipu: int) -> Stage:
        """Sets the IPU of each replica that the stage runs on, whatever its blocks ask for."""
        self._ipu = check.require_integer(ipu, "the IPU of a Stage", at_least=0)
        return self

    def __repr__(self) -> str:
        blocks = ", ".join(map(repr, self._blocks))
        return f"Stage({blocks})" + (f".ipu({self._ipu})" if self._ipu is not None else "")


@dc.dataclass(frozen=True)
class Place:
    """The pipeline stage and the IPU of a block.

    Attributes:
      stage: the index of the pipeline stage, from 0.
      ipu: the index of the IPU in its replica, from 0.
    """

    stage: int
    ipu: int


class BlockPlacer:
    """A placer of blocks, in the order in which they begin in one forward pass.

    Blocks of the same name get the same stage.
    """

    def __init__(self, strategy: _ExecutionStrategy):
        self._strategy = strategy
        self._stages: dict[BlockId, int] = {}

    def place_block(self, user_id: BlockId, ipu_id: int | None = None) -> Place:
        """Places a block that begins on a stage and an IPU.

        Args:
          user_id: the block's name.
          ipu_id: the IPU that the block asks for; the stage's own IPU takes precedence, and
            without both it is the IPU with the stage's number.

        Raises:
          Error: the strategy lists stages without this block; or its stage is to be that of the
            IPU, which the block does not say.
        """
        if not self._strategy._block_map:
            if user_id not in self._stages:
                self._stages[user_id] = self._choose_stage(user_id, ipu_id)
            number = self._stages[user_id]
        else:
            stage = self._strategy.stage(user_id)
            number = stage._stage_id
            ipu_id = ipu_id if stage._ipu is None else stage._ipu
        return Place(number, number if ipu_id is None else ipu_id)

    def _choose_stage(self, block: BlockId, ipu: int | None) -> int:
        if self._strategy.auto_stage is AutoStage.AutoIncrement:
            return len(self._stages)
        if ipu is None:
            raise check.value_error(
                f"poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for block "
                f"{block!r}",
                "give the block an ipu_id, list the blocks as in PipelinedExecution('A', 'B'), or "
                "use poptorch.AutoStage.AutoIncrement",
            )
        return ipu


class _ExecutionStrategy:
    """A base class of the execution strategies.

    Attributes:
      auto_stage: the rule by which blocks get stages if none are listed.
    """

    auto_stage: AutoStage
    _block_map: dict[BlockId, Stage]

    def stage(self, block_id: BlockId) -> Stage:
        """Returns the stage that a block belongs to.

        Raises:
          Error: no stage has the block.
        """
        if block_id not in self._block_map:
            known_blocks = ", ".join(map(repr, self._block_map)) or "none"
            raise check.value_error(
                f"Unknown Block {block_id!r}: the blocks of the strategy's stages are "
                f"{known_blocks}"
            )
        return self._block_map[block_id]

    def stages(self) -> list[Stage]:
        """Returns the stages that were listed, in their order."""
        return list(dict.fromkeys(self._block_map.values()))

    def create_placer(self) -> BlockPlacer:
        """Returns a placer of the blocks of one forward pass."""
        return BlockPlacer(self)

    def backendOptions(self) -> Keywords:
        """Returns the strategy as entries of `Options.toDict()`."""
        return {}


@check.guard
class PipelinedExecution(_ExecutionStrategy):
    """A strategy in which the stages of a replica run in parallel on different micro-batches.

    Args:
      args: the stages in order, each a `Stage`, the name of a block or a list of such names; or one
        `AutoStage`; nothing stands for `AutoStage.SameAsIpu`.

    Raises:
      Error: an argument is something else, or a block is in two stages.
    """

    def __init__(self, *args: Stage | BlockId | Iterable[BlockId] | AutoStage):
        self.auto_stage = AutoStage.SameAsIpu
        self._block_map = {}
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self.auto_stage = args[0]
            return
        for number, arg in enumerate(args):
            stage = _to_stage(arg)
            stage._stage_id = number
            for block in stage.blocks:
                if block in self._block_map:
                    raise check.value_error(
                        f"block {block!r} is associated with more than one stage"
                    )
                self._block_map[block] = stage

    def backendOptions(self) -> Keywords:
        """Returns the strategy as entries of `Options.toDict()`."""
        return {"execution_mode": 0}

    def __eq__(self, other: object) -> bool:
        """Returns whether another strategy places all blocks alike."""
        return type(self) is type(other) and repr(self) == repr(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - stages can be put on other IPUs

    def __repr__(self) -> str:
        stages = ", ".join(map(repr, self.stages())) or f"AutoStage.{self.auto_stage.name}"
        return f"{type(self).__name__}({stages})"


@check.guard
class ShardedExecution(PipelinedExecution):
    """A strategy in which the stages of a replica run one after the other on each micro-batch."""

    def __init__(self, *args: Stage | BlockId | Iterable[BlockId] | AutoStage):
        super().__init__(*args)
        if self.auto_stage is AutoStage.Auto:
            raise check.value_error(
                "AutoStage.Auto plans a pipeline, and the stages of ShardedExecution run one after "
                "the other",
                "use poptorch.PipelinedExecution(poptorch.AutoStage.Auto)",
            )

    def backendOptions(self) -> Keywords:
        """Returns the strategy as entries of `Options.toDict()`."""
        return {"execution_mode": 1}


def _to_stage(arg: object) -> Stage:
    if isinstance(arg, Stage):
        return arg
    if isinstance(arg, AutoStage):
        raise check.value_error(
            "an AutoStage is given together with stages", "give an AutoStage alone, or stages"
        )
    names = (
        [arg] if isinstance(arg, str) else check.require_iterable(arg, "a stage", "names of blocks")
    )
    return Stage(*names)


class _Phased(_ExecutionStrategy):
    """A base class of the missing strategies of phased execution: raises an error."""

    def __init__(self, *args: Any):
        raise check.value_error(
            f"poptorch.{type(self).__name__}: phased execution is missing",
            "use poptorch.PipelinedExecution, or ShardedExecution: they compute the same",
        )


@check.guard
class Phase(_Phased):
    """The missing group of stages that run at the same time in phased execution.

    Raises:
      Error: always: phased execution is missing.
    """


@check.guard
class ParallelPhasedExecution(_Phased):
    """The missing strategy of phases on two groups of IPUs in turn.

    Raises:
      Error: always: phased execution is missing.
    """


@check.guard
class SerialPhasedExecution(_Phased):
    """The missing strategy of phases one after the other on one group of IPUs.

    Raises:
      Error: always: phased execution is missing.
    """
