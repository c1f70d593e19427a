"""A task: the work of one stage on one micro-batch, and the tasks that it needs."""

from __future__ import annotations

import enum
import itertools
import operator
import re
from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias

from lowering.schedules.schedule_errors import ScheduleError


class Phase(enum.StrEnum):
    """The phase of a task: forward, backward, the gradient of weights, or what is in between.

    WEIGHTS only occurs in schedules that split the backward pass: there BACKWARD is the gradient
    of the stage's inputs and WEIGHTS that of its weights; elsewhere BACKWARD is both.

    Stages with tasks RECOMPUTE keep only what enters them, and run the forward pass again from
    that. OFFLOAD moves what waits for the backward pass to the host's memory, LOAD moves it back.
    """

    FORWARD = "F"
    BACKWARD = "B"
    WEIGHTS = "W"
    RECOMPUTE = "R"
    OFFLOAD = "O"
    LOAD = "L"

    @property
    def word(self) -> str:
        """The word of reports and traces for the phase: "fwd", "bwd" or "wgt", for example."""
        return _WORDS[self]


_WORDS = dict(zip(Phase, ("fwd", "bwd", "wgt", "recompute", "offload", "load"), strict=True))
_LABEL = re.compile(rf"(\d{{1,18}})([{''.join(Phase)}])(\d{{1,18}})", re.ASCII)

PHASES_BETWEEN = (Phase.RECOMPUTE, Phase.OFFLOAD, Phase.LOAD)
"""The phases between a forward and a backward task, which a stage may have or not."""

Kind: TypeAlias = tuple[Phase, int]
"""A phase and the stage that it is of."""

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""The IPUs of each stage."""


class Task(NamedTuple):
    """One phase of one stage on one micro-batch; `str` of it is a label such as `2F7`."""

    stage: int
    phase: Phase
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.phase}{self.micro_batch}"

    @classmethod
    def parse(cls, label: str) -> Task:
        """Returns the task of a label: stage, letter of the phase, micro-batch.

        Raises:
          ScheduleError: a text that is no label.
        """
        parts = _LABEL.fullmatch(label)
        if parts is None:
            raise ScheduleError(
                f"{label!r} is no task",
                fix="write the stage, one of F, B, W, R, O and L, and the micro-batch: 2F7",
            )
        return cls(int(parts[1]), Phase(parts[2]), int(parts[3]))

    @classmethod
    def of(cls, item: Any) -> Task:
        """Returns the task that a user means: one, the tuple of one, or a label.

        Raises:
          ScheduleError: something else.
        """
        if isinstance(item, Task):
            return item
        if isinstance(item, str):
            return cls.parse(item)
        try:
            stage, phase, micro_batch = item
            return cls(operator.index(stage), Phase(phase), operator.index(micro_batch))
        except (TypeError, ValueError):
            raise ScheduleError(
                f"{item!r} is no task", fix='write Task(2, Phase.FORWARD, 7), (2, "F", 7) or "2F7"'
            ) from None


def find_kinds_between(kinds: Collection[Kind]) -> frozenset[Kind]:
    """Returns the kinds of R, O and L among others; a stage with one of O and L has both."""
    listed_kinds = {kind for kind in kinds if kind[0] in PHASES_BETWEEN}
    moved = {stage for phase, stage in listed_kinds if phase != Phase.RECOMPUTE}
    return frozenset(listed_kinds).union(
        (phase, stage) for stage in moved for phase in (Phase.OFFLOAD, Phase.LOAD)
    )


def inputs_on_stage(phase: Phase, stage: int, between: Collection[Kind] = ()) -> tuple[Kind, ...]:
    """Returns the kinds of tasks on its own stage whose results a task reads.

    Args:
      phase: the phase of the task.
      stage: its stage.
      between: the kinds of tasks RECOMPUTE, OFFLOAD and LOAD that there are.
    """
    sources = {
        Phase.FORWARD: (),
        Phase.BACKWARD: (Phase.RECOMPUTE, Phase.LOAD, Phase.FORWARD),
        Phase.WEIGHTS: (Phase.BACKWARD,),
        Phase.RECOMPUTE: (Phase.LOAD, Phase.FORWARD),
        Phase.OFFLOAD: (Phase.FORWARD,),
        Phase.LOAD: (Phase.OFFLOAD,),
    }[phase]
    present = (s for s in sources if s not in PHASES_BETWEEN or (s, stage) in between)
    return tuple((source, stage) for source in itertools.islice(present, 1))
