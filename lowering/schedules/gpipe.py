"""GPipe: all forward passes, then all backward passes (Huang et al., arXiv 1811.06965)."""

from __future__ import annotations

from lowering.schedules.orders import arranged
from lowering.schedules.rotations import passed_stages
from lowering.schedules.schedule import Ipus, Schedule, check_sizes, place
from lowering.schedules.task import Task
from lowering.schedules.ticks import Run, in_turn


def gpipe(stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None) -> Schedule:
    """Fills the pipeline with all micro-batches before the first one goes back.

    With an IPU for every stage, I micro-batches take 2 * (I + stages - 1) ticks, half of that for
    inference, and every stage keeps the activations of all of them. Stages that share an IPU run
    one after the other, each on all micro-batches.

    Args:
      stages: the forward stages.
      micro_batches: any number.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.
    """
    check_sizes(stages, micro_batches, training)
    placed = place(stages, ipus)
    orders: dict[int, list[Run]] = {ipu: [] for group in placed for ipu in group}
    for stage, phase in passed_stages(stages, training):
        for ipu in placed[stage]:
            orders[ipu].append(in_turn([Task(stage, phase, 0)], micro_batches, 1))
    return arranged("gpipe", orders, placed, micro_batches, training)
