"""Seq1F1B: 1F1B whose micro-batches are segments of sequences (arXiv 2406.03488)."""

from __future__ import annotations

from lowering.schedules.layout import Layout
from lowering.schedules.one_f_one_b import check_one_stage_per_ipu
from lowering.schedules.orders import schedule_layout
from lowering.schedules.rotations import check_complete_sets
from lowering.schedules.schedule import (
    MAX_MICRO_BATCHES,
    Ipus,
    Schedule,
    check_pipeline_sizes,
    check_positive_int,
    ipus_of_stages,
)
from lowering.schedules.schedule_registry import register_schedule
from lowering.schedules.task import Phase, Task
from lowering.schedules.ticks import Run, one_task_per_tick


@register_schedule(rank=57, is_plain=False)
def seq_one_f_one_b(
    stages: int,
    micro_batches: int,
    *,
    training: bool = True,
    ipus: Ipus = None,
    segments: int = 2,
) -> Schedule:
    """Runs the segments of each sequence forward in order, and backward in reverse.

    Segment j of sequence m is the micro-batch of number m * `segments` + j: it waits for the
    segment before it in its stage, forward, and for the one after it, backward. I of them take
    2 * (I + stages - 1) + segments - 1 ticks at most; stage s keeps the activations of
    `stages` - 1 - s + `segments` segments, where 1F1B keeps `stages` - s whole sequences (Sun et
    al., "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Models").

    Args:
      stages: the forward stages.
      micro_batches: all segments of all sequences, a multiple of `segments`.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage, of its own; None puts stage i on IPU i.
      segments: of each sequence; with 1 it is `one_f_one_b`.

    Raises:
      ScheduleError: two stages on one IPU, or an incomplete sequence.
    """
    check_pipeline_sizes(stages, micro_batches, training)
    check_positive_int(segments, "segments={}", MAX_MICRO_BATCHES)
    check_complete_sets("seq-1f1b", micro_batches, segments)
    stage_ipus = ipus_of_stages(stages, ipus)
    check_one_stage_per_ipu("seq-1f1b", stage_ipus)
    orders: dict[int, list[Run]] = {}
    for stage, group in enumerate(stage_ipus):
        if training:
            lead = min(micro_batches, stages - 1 - stage + segments - 1)
            order = _order_of_stage(stage, lead, micro_batches, segments)
        else:
            sequence = [Task(stage, Phase.FORWARD, segment) for segment in range(segments)]
            order = [one_task_per_tick(sequence, micro_batches // segments, segments)]
        orders.update(dict.fromkeys(group, order))
    layout = Layout(micro_batches=micro_batches, copies=(stage_ipus,), segments=segments)
    return schedule_layout("seq-1f1b", orders, layout, training)


def _order_of_stage(stage: int, lead: int, micro_batches: int, segments: int) -> list[Run]:
    """Returns `lead` forward tasks, then a backward and a forward one in turn."""

    def backward(number: int) -> Task:
        sequence, segment = divmod(number, segments)
        return Task(stage, Phase.BACKWARD, sequence * segments + segments - 1 - segment)

    order = [one_task_per_tick([Task(stage, Phase.FORWARD, 0)], lead, 1)]
    rounds = (micro_batches - lead) // segments
    steady = [
        task
        for number in range(segments)
        for task in (Task(stage, Phase.FORWARD, lead + number), backward(number))
    ]
    order.append(one_task_per_tick(steady, rounds, segments))
    last_tasks: list[Task] = []
    for number in range(rounds * segments, micro_batches):
        if lead + number < micro_batches:
            last_tasks.append(Task(stage, Phase.FORWARD, lead + number))
        last_tasks.append(backward(number))
    return [*order, one_task_per_tick(last_tasks)]
