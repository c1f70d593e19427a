"""DualPipe: both directions at once, with a split backward pass (DeepSeek-V3, arXiv 2412.19437)."""

from __future__ import annotations

from lowering.schedules.bidirectional import number_both_ways, orders_by_ipu, place_both_ways
from lowering.schedules.dualpipe_order import FAR, build_order
from lowering.schedules.one_f_one_b import check_one_stage_per_ipu
from lowering.schedules.orders import schedule_layout
from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Phase, Task
from lowering.schedules.ticks import Run
from lowering.schedules.zero_bubble import zero_bubble


@register_schedule(rank=81, splits_backward=True, is_plain=False)
def dualpipe(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """Puts a copy of each stage on IPU P - 1 - s as well, and fills gaps with weights' gradients.

    For an even number P of stages, I micro-batches, an even number of at least 2 * P, take
    3 * I + P / 2 - 1 ticks. An IPU keeps the activations of P + 1 micro-batches at most, of P + 2
    if P is odd, for twice the memory of parameters. Tasks are in the order of DeepSeek's
    ("DeepSeek-V3 Technical Report"), one after the other on an IPU; an odd last micro-batch goes
    from the first IPU.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: must be true.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i. Where the
        stages s and P - 1 - s have different numbers of IPUs, it is `zero_bubble`, as it is with
        one stage or micro-batch.

    Raises:
      ScheduleError: inference, or two stages on one IPU.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    if not training:
        raise ScheduleError(
            "inference with the schedule dualpipe: without a backward pass it has nothing to split",
            fix="use chimera, which runs in both directions as well",
        )
    stage_ipus = ipus_of_stages(stages, ipus)
    check_one_stage_per_ipu("dualpipe", stage_ipus)
    layout = place_both_ways(stage_ipus, micro_batches)
    if layout is None:
        return zero_bubble(stages, micro_batches, training=training, ipus=stage_ipus)
    orders = [_order_at_position(position, stages, micro_batches) for position in range(stages)]
    return schedule_layout("dualpipe", orders_by_ipu(stage_ipus, orders), layout, training)


def _order_at_position(position: int, stages: int, micro_batches: int) -> list[Run]:
    """Returns the order of an IPU, to which even micro-batches come from the first one."""
    is_behind = position > (stages - 1) // 2
    counts = [(micro_batches + 1) // 2, micro_batches // 2]

    def task_of(phase: Phase, end: int, number: int) -> Task:
        direction = (end == FAR) ^ is_behind
        stage = stages - 1 - position if direction else position
        return number_both_ways(Task(stage, phase, number), direction)

    # With an odd number of stages, the position behind the middle is left out.
    is_odd = stages % 2
    return build_order(
        position + (is_odd and is_behind),
        stages + is_odd,
        near=counts[is_behind],
        far=counts[not is_behind],
        task_of=task_of,
        step=2,
    )
