"""A task: the work of one stage on one micro-batch, and the tasks that it needs."""

from __future__ import annotations

import enum
import operator
import re
from typing import Any, NamedTuple, TypeAlias

from lowering.schedules.schedule_errors import ScheduleError

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""The IPUs of each stage."""


class Phase(enum.StrEnum):
    """The phase of a task: forward, backward, or the gradient of weights.

    WEIGHTS only occurs in schedules that split the backward pass: there BACKWARD is the gradient
    of the stage's inputs and WEIGHTS that of its weights; elsewhere BACKWARD is both.
    """

    FORWARD = "F"
    BACKWARD = "B"
    WEIGHTS = "W"

    @property
    def word(self) -> str:
        """The word of reports and traces for the phase: "fwd", "bwd" or "wgt"."""
        return {"F": "fwd", "B": "bwd", "W": "wgt"}[self]


_LABEL = re.compile(r"(\d{1,18})([FBW])(\d{1,18})", re.ASCII)


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
                fix="write the stage, one of F, B and W, and the micro-batch: 2F7",
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


def inputs_of_task(phase: Phase, stage: int, stages: int) -> tuple[tuple[Phase, int], ...]:
    """Returns the (phase, stage) of the tasks of a micro-batch whose results a task reads."""
    if phase == Phase.FORWARD:
        return ((Phase.FORWARD, stage - 1),) if stage else ()
    if phase == Phase.WEIGHTS:
        return ((Phase.BACKWARD, stage),)
    forward = (Phase.FORWARD, stage)
    return (forward,) if stage == stages - 1 else (forward, (Phase.BACKWARD, stage + 1))
