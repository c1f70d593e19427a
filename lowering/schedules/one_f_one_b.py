"""1F1B: one forward pass, one backward pass (Narayanan et al., PipeDream, arXiv 1806.03377)."""

from __future__ import annotations

from lowering.schedules.orders import arranged, staggered
from lowering.schedules.schedule import Ipus, Schedule, check_apart, check_sizes, place
from lowering.schedules.task import Groups, Phase
from lowering.schedules.ticks import Run


def one_f_one_b(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """As many forward passes first as there are stages to come, then backward and forward in turn.

    I micro-batches take 2 * (I + stages - 1) ticks, as with GPipe, but stage s keeps the
    activations of `stages` - s micro-batches at most. Inference is a plain wave of
    I + stages - 1 ticks.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.

    Raises:
      ScheduleError: two stages on one IPU.
    """
    check_sizes(stages, micro_batches, training)
    placed = place(stages, ipus)
    check_own_ipus("1f1b", placed)
    orders: dict[int, list[Run]] = {}
    for stage, group in enumerate(placed):
        lags = {(stage, Phase.FORWARD): 0}
        if training:
            lags[stage, Phase.BACKWARD] = min(micro_batches, stages - 1 - stage)
        orders.update(dict.fromkeys(group, staggered(lags, micro_batches)))
    return arranged("1f1b", orders, placed, micro_batches, training)


def check_own_ipus(name: str, ipus: Groups) -> None:
    """Refuses stages that share an IPU.

    Raises:
      ScheduleError: two that do.
    """
    check_apart(
        ipus,
        f"the {name} schedule with stages "
        "{} and {} both on IPU {}: it gives every stage IPUs of its own",
        fix="use interleaved_one_f_one_b, which deals out several stages to an IPU, or gpipe",
    )
