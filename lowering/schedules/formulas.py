"""Closed forms of schedules from papers: how long an IPU idles, and what it holds.

With P IPUs and v stages on each, an IPU works for v * forward, v * backward and v * weight on a
micro-batch. Where a schedule does not split the backward pass, its backward task takes
backward + weight. Stages take equally long, and results travel in no time.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from lowering.schedules.schedule import check_pipeline_sizes
from lowering.schedules.schedule_errors import ScheduleError, repr_or_type


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """The cost of a schedule in closed form.

    Attributes:
      bubble: seconds from the first to the last task of an IPU less its work, the most of all.
      memory: the most micro-batches that an IPU holds at once, from the start of their forward
        tasks to the end of the last of their gradients; a stage of v on an IPU counts 1/v.
      exact: whether `bubble` is what an IPU idles, for the numbers that the schedule is made for;
        else it is what its paper says of many IPUs.
    """

    bubble: float
    memory: float
    exact: bool = True


class Formula(Protocol):
    """The closed form of one schedule, from its numbers and the seconds of a stage's tasks."""

    def __call__(
        self,
        stages: int,
        micro_batches: int,
        *,
        forward: float = 1.0,
        backward: float = 1.0,
        weight: float = 1.0,
    ) -> ClosedForm:
        """Computes the closed form.

        Args:
          stages: the model's stages.
          micro_batches: how many there are.
          forward: the seconds of a stage's forward pass of a micro-batch.
          backward: those of the gradient of its inputs.
          weight: those of the gradient of its weights.

        Raises:
          ScheduleError: numbers that no pipeline of the schedule has, or negative seconds.
        """
        ...


@dc.dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers that a closed form is computed from, by the letters of the papers.

    Attributes:
      p: the IPUs.
      m: the micro-batches.
      f: the seconds in which an IPU runs the forward pass of a micro-batch, in all its stages.
      b: those of gradients of inputs.
      w: those of gradients of weights.
      v: the stages on each IPU.
    """

    p: int
    m: int
    f: float
    b: float
    w: float
    v: int = 1

    @property
    def all_tasks(self) -> float:
        """The seconds of an IPU for one micro-batch."""
        return self.f + self.b + self.w

    @property
    def of_zero_bubble(self) -> ClosedForm:
        """The bubble of a split backward pass with the memory of 1F1B."""
        return ClosedForm(
            bubble=max(0.0, (self.p - 1) * (self.f + self.b - self.w)), memory=min(self.m, self.p)
        )


def _form_of_one_f_one_b(n: _Numbers) -> ClosedForm:
    """PipeDream-Flush: Narayanan et al., arXiv 2006.09503; exact for any number."""
    return ClosedForm(bubble=(n.p - 1) * n.all_tasks, memory=min(n.m, n.p))


def _form_of_gpipe(n: _Numbers) -> ClosedForm:
    """Huang et al., arXiv 1811.06965; exact for any number."""
    return ClosedForm(bubble=(n.p - 1) * n.all_tasks, memory=n.m)


def _form_of_grouped(n: _Numbers) -> ClosedForm:
    """TensorFlow for the IPU, driver/visitors/pipeline_visitor_utils.h; exact for any number."""
    return ClosedForm(bubble=(n.p - 1) * n.all_tasks, memory=min(n.m, 2 * n.p - 1))


def _form_of_eager_one_f_one_b(n: _Numbers) -> ClosedForm:
    """Zhuang et al., arXiv 2211.05322; exact for any number."""
    return ClosedForm(bubble=(n.p - 1) * n.all_tasks, memory=min(n.m, 2 * n.p - 1))


def _form_of_sequential(n: _Numbers) -> ClosedForm:
    """One stage of one micro-batch at a time; exact for any number."""
    return ClosedForm(bubble=(n.p - 1) * n.m * n.all_tasks, memory=1)


def _form_of_looped_bfs(n: _Numbers) -> ClosedForm:
    """Lamy-Poirier, arXiv 2211.05953; exact from P micro-batches on."""
    return ClosedForm(bubble=(n.p - 1) * n.all_tasks / n.v, memory=n.m)


def _form_of_interleaved_one_f_one_b(n: _Numbers) -> ClosedForm:
    """Narayanan et al., arXiv 2104.04473; exact for multiples of P micro-batches."""
    ahead = n.p + (n.p - 1) / n.v
    return ClosedForm(bubble=(n.p - 1) * n.all_tasks / n.v, memory=min(n.m, ahead))


def _form_of_seq_one_f_one_b(n: _Numbers) -> ClosedForm:
    """Sun et al., arXiv 2406.03488; exact for any even number, in two segments of a sequence."""
    return ClosedForm(bubble=(n.p - 1) * n.all_tasks, memory=min(n.m, n.p + 1))


def _form_of_chimera(n: _Numbers) -> ClosedForm:
    """Li and Hoefler, arXiv 2107.06925.

    Exact for an even P, multiples of P micro-batches, and forward = backward + weight. It is 1F1B
    with one stage or one micro-batch.
    """
    if n.p == 1 or n.m == 1:
        return _form_of_one_f_one_b(n)
    return ClosedForm(bubble=(n.p / 2 - 1) * n.all_tasks, memory=min(n.m, n.p))


def _form_of_zero_bubble_h1(n: _Numbers) -> ClosedForm:
    """Qi et al., arXiv 2401.10241; exact from P micro-batches on, for weight <= forward."""
    return n.of_zero_bubble


def _form_of_zero_bubble_h2(n: _Numbers) -> ClosedForm:
    """Qi et al., arXiv 2401.10241; exact for weight <= forward, and backward >= weight.

    It is ZB-H1 for fewer than 2 * P - 1 micro-batches.
    """
    if n.m < 2 * n.p - 1:
        return n.of_zero_bubble
    bubble = (n.p - 1) * (n.f + n.b - 2 * n.w)
    return ClosedForm(bubble=max(0.0, bubble), memory=2 * n.p - 1)


def _form_of_interleaved_zero_bubble(n: _Numbers) -> ClosedForm:
    """Qi et al., arXiv 2401.10241; exact for multiples of P micro-batches.

    And for weight <= forward, and backward >= weight.
    """
    bubble = (n.p - 1) * (n.f + n.b - n.w) / n.v
    return ClosedForm(bubble=max(0.0, bubble), memory=min(n.m, n.p + (n.p - 1) / n.v))


def _form_of_dualpipe(n: _Numbers) -> ClosedForm:
    """DeepSeek-AI, arXiv 2412.19437.

    Exact for an even P, an even number of at least 2 * P, and backward = forward >= weight. Their
    table has as many weights' gradients in a pause, and a longer task for a forward and a backward
    pass that overlap; here these are one after the other. It is ZB-H1 with one stage or one
    micro-batch.
    """
    if n.p == 1 or n.m == 1:
        return n.of_zero_bubble
    memory = min(n.m, n.p + 1 + n.p % 2)
    return ClosedForm(bubble=(n.p / 2 - 1) * (n.f + n.b - n.w), memory=memory)


def _form_of_dualpipe_v(n: _Numbers) -> ClosedForm:
    """DeepSeek-AI, github.com/deepseek-ai/DualPipe.

    Exact from 2 * P micro-batches on, for backward = forward >= weight.
    """
    bubble = (n.p - 1) * (n.f + n.b - n.w) / n.v
    return ClosedForm(bubble=bubble, memory=min(n.m, n.p + 0.5))


def _form_of_zbv(n: _Numbers) -> ClosedForm:
    """Qi et al., arXiv 2405.15362, V-ZB for forward = backward = weight: a bubble of about 0."""
    return ClosedForm(bubble=0.0, memory=min(n.m, n.p), exact=False)


def _form_of_v_half(n: _Numbers) -> ClosedForm:
    """Qi et al., arXiv 2405.15362, for forward = backward = weight: a bubble of about p / 2m."""
    memory = min(n.m, (n.p + 2) // 2)
    return ClosedForm(bubble=n.p / 2 * n.all_tasks, memory=memory, exact=False)


def _form_of_v_min(n: _Numbers) -> ClosedForm:
    """Qi et al., arXiv 2405.15362, for forward = backward = weight: a bubble of about 2p / 3m."""
    memory = min(n.m, (n.p + 4) // 3)
    return ClosedForm(bubble=2 * n.p / 3 * n.all_tasks, memory=memory, exact=False)


def _of_stages(rule: Callable[[_Numbers], ClosedForm], stages_per_ipu: int = 1) -> Formula:
    """Returns the closed form as a function of the model's stages."""

    def formula(
        stages: int,
        micro_batches: int,
        *,
        forward: float = 1.0,
        backward: float = 1.0,
        weight: float = 1.0,
    ) -> ClosedForm:
        check_pipeline_sizes(stages, micro_batches, True)
        if stages % stages_per_ipu:
            raise ScheduleError(
                f"{stages} stages, {stages_per_ipu} on each IPU",
                fix=f"use a multiple of {stages_per_ipu}",
            )
        seconds = {"forward": forward, "backward": backward, "weight": weight}
        f, b, w = (stages_per_ipu * _read_seconds(*pair) for pair in seconds.items())
        return rule(_Numbers(stages // stages_per_ipu, micro_batches, f, b, w, stages_per_ipu))

    formula.__doc__ = f"{rule.__doc__}\n\n{Formula.__call__.__doc__}"
    return formula


def _read_seconds(name: str, value: Any) -> float:
    try:
        is_time = 0 <= value < math.inf
    except Exception:  # whatever an object raises when it is compared with a number
        is_time = False
    if not is_time:
        raise ScheduleError(
            f"{name}={repr_or_type(value)} for a closed form",
            fix="give seconds, finite and not negative",
        )
    return float(value)


formulas: Mapping[str, Formula] = MappingProxyType(
    {
        "grouped": _of_stages(_form_of_grouped),
        "interleaved": _of_stages(_form_of_one_f_one_b),
        "sequential": _of_stages(_form_of_sequential),
        "gpipe": _of_stages(_form_of_gpipe),
        "one_f_one_b": _of_stages(_form_of_one_f_one_b),
        "eager_one_f_one_b": _of_stages(_form_of_eager_one_f_one_b),
        "seq_one_f_one_b": _of_stages(_form_of_seq_one_f_one_b),
        "chimera": _of_stages(_form_of_chimera),
        "interleaved_one_f_one_b": _of_stages(_form_of_interleaved_one_f_one_b, 2),
        "looped_bfs": _of_stages(_form_of_looped_bfs, 2),
        "zero_bubble": _of_stages(_form_of_zero_bubble_h1),
        "zero_bubble_h1": _of_stages(_form_of_zero_bubble_h1),
        "zero_bubble_h2": _of_stages(_form_of_zero_bubble_h2),
        "interleaved_zero_bubble": _of_stages(_form_of_interleaved_zero_bubble, 2),
        "zbv": _of_stages(_form_of_zbv, 2),
        "v_half": _of_stages(_form_of_v_half, 2),
        "v_min": _of_stages(_form_of_v_min, 2),
        "dualpipe": _of_stages(_form_of_dualpipe),
        "dualpipe_v": _of_stages(_form_of_dualpipe_v, 2),
    }
)
"""The closed forms, by the names of schedules.

Schedules that deal out stages have two on each IPU, as they do by themselves, and those in a V.
"""
