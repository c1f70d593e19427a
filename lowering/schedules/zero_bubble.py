"""Zero bubble, ZB-H1: gradients of weights fill the gaps (Qi et al., arXiv 2401.10241)."""

from __future__ import annotations

from lowering.schedules.errors import ScheduleError
from lowering.schedules.one_f_one_b import check_own_ipus
from lowering.schedules.orders import arranged, staggered
from lowering.schedules.schedule import Ipus, Schedule, check_sizes, place
from lowering.schedules.task import Phase
from lowering.schedules.ticks import Run


def zero_bubble(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """1F1B with the backward pass in two: the earlier stage waits for the inputs' gradient only.

    From `stages` micro-batches on, I of them take 3 * I + stages - 1 ticks, of which an IPU idles
    `stages` - 1, where 1F1B idles as long for each of the three parts. Every stage keeps the
    activations of `stages` micro-batches at most, until the gradient of its weights is made.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: inference, or two stages on one IPU.
    """
    check_sizes(stages, micro_batches, training)
    if not training:
        raise ScheduleError(
            "inference with the zero-bubble schedule: without a backward pass it has nothing to "
            "split",
            fix="use one_f_one_b, which is a plain wave for inference",
        )
    placed = place(stages, ipus)
    check_own_ipus("zero-bubble", placed)
    orders: dict[int, list[Run]] = {}
    for stage, group in enumerate(placed):
        warm_up = min(micro_batches, stages - 1 - stage)
        lags = {
            (stage, Phase.FORWARD): 0,
            (stage, Phase.BACKWARD): warm_up,
            # Later stages put off more: what they put off fills the ramp-down.
            (stage, Phase.WEIGHTS): warm_up + min(micro_batches, stage),
        }
        orders.update(dict.fromkeys(group, staggered(lags, micro_batches)))
    return arranged("zero-bubble", orders, placed, micro_batches, training)
