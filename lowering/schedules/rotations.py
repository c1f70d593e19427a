"""The three schedules of the IPU: one word of stages, started again and again.

The word is the path of one micro-batch: the forward stages in order and, for training, the
backward stages in reverse. Micro-batches start in sets of K, the overlap: each set a word's length
after the one before, each member of a set at an offset of its own. The schedules differ only in
the offsets (TensorFlow for the IPU, driver/visitors/pipeline_visitor_utils.h: AllUnion for
Grouped, CircularUnion for Interleaved, NoUnion for Sequential).
"""

from __future__ import annotations

from collections.abc import Sequence

from lowering.schedules.schedule import Ipus, Schedule, check_pipeline_sizes, ipus_of_stages
from lowering.schedules.schedule_errors import ScheduleError, check_instance
from lowering.schedules.task import Groups, Phase, Task
from lowering.schedules.ticks import Run, Tick, Ticks


def stage_phases_of_micro_batch(stages: int, training: bool) -> list[tuple[int, Phase]]:
    """Returns the word: the stages that a micro-batch passes, with their phases."""
    forward = [(stage, Phase.FORWARD) for stage in range(stages)]
    backward = [(stage, Phase.BACKWARD) for stage in reversed(range(stages))]
    return forward + backward if training else forward


def distinct_rotations(word: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the rotations of a cyclic word of IPUs that can run at once, found greedily.

    Two rotations can run at once if they have no common IPU at any position; 0 is taken first.
    """
    check_instance(word, Sequence, "a word of IPUs")
    for entry in word:
        check_instance(entry, tuple, "an entry of a word of IPUs")
    length = len(word)
    clashes = [
        any(not set(word[i]).isdisjoint(word[(i + shift) % length]) for i in range(length))
        for shift in range(length)
    ]
    rotations = [0]
    for rotation in range(1, length):
        if not any(clashes[rotation - chosen] for chosen in rotations):
            rotations.append(rotation)
    return tuple(rotations)


def start_offsets(
    name: str, stages: int, *, training: bool = True, ipus: Ipus = None
) -> tuple[int, ...]:
    """Returns the ticks, within a word's length, at which the micro-batches of a set start.

    Args:
      name: "grouped", "interleaved" or "sequential".
      stages: the forward stages.
      training: whether there are backward stages.
      ipus: the IPUs of each stage; None puts stage i on IPU i.

    Raises:
      ScheduleError: another name.
    """
    check_instance(name, str, "the name of a schedule")
    check_pipeline_sizes(stages, 1, training)
    stage_ipus = ipus_of_stages(stages, ipus)
    word = stage_phases_of_micro_batch(stages, training)
    if name == "grouped":
        return tuple(range(len(word)))
    if name == "interleaved":
        return distinct_rotations([stage_ipus[stage] for stage, _ in word])
    if name == "sequential":
        return (0,)
    raise ScheduleError(
        f"{name!r} is no schedule of the IPU", fix="use grouped, interleaved or sequential"
    )


def overlap(name: str, stages: int, *, training: bool = True, ipus: Ipus = None) -> int:
    """Returns K, how many micro-batches are in the pipeline at once; see `start_offsets`."""
    return len(start_offsets(name, stages, training=training, ipus=ipus))


def check_complete_sets(name: str, micro_batches: int, multiple: int) -> None:
    """Raises if a number of micro-batches leaves a set of them incomplete.

    Raises:
      ScheduleError: a number that is not a multiple.
    """
    if micro_batches % multiple == 0:
        return
    above = (micro_batches // multiple + 1) * multiple
    below = above - multiple
    raise ScheduleError(
        f"{micro_batches} micro-batches in the {name} schedule: their number (the gradient "
        f"accumulation count) must be a multiple of {multiple}, of which each set consists",
        fix=f"use {f'{below} or ' if below else ''}{above} micro-batches",
    )


def schedule_repeated_word(
    name: str, starts: Sequence[int], ipus: Groups, micro_batches: int, training: bool
) -> Schedule:
    """Builds the schedule in which micro-batch q * K + r starts at tick q * N + starts[r].

    Sets begin N ticks apart, and another N ticks let the last one end; some of these may be empty.

    Args:
      name: the schedule's name.
      starts: the K offsets, ascending and below the word's length N.
      ipus: the IPUs of every stage.
      micro_batches: how many there are.
      training: whether there are backward tasks.
    """
    word = stage_phases_of_micro_batch(len(ipus), training)
    length, overlapping = len(word), len(starts)
    ticks = length * micro_batches // overlapping + length

    def tasks_of_tick(number: int) -> Tick:
        # The oldest micro-batch is dispatched first in each tick. It is the furthest along the
        # word, so backward tasks come before forward tasks, and a value is used before its
        # successor is made.
        set_index, offset = divmod(number, length)
        candidates = [
            ((set_index - 1) * overlapping + r, length + offset - starts[r]) for r in members
        ]
        candidates += [(set_index * overlapping + r, offset - starts[r]) for r in members]
        return tuple(
            Task(*word[position], micro_batch)
            for micro_batch, position in candidates
            if 0 <= micro_batch < micro_batches and 0 <= position < length
        )

    members = range(overlapping)
    # In the ticks of a word's length from the second on, two whole sets are under way.
    steady = max(0, micro_batches // overlapping - 1)
    runs = [
        Run(tuple(map(tasks_of_tick, range(length)))),
        Run(
            tuple(map(tasks_of_tick, range(length, 2 * length))) if steady else (),
            steady,
            overlapping,
        ),
        Run(tuple(map(tasks_of_tick, range(length * (1 + steady), ticks)))),
    ]
    return Schedule(
        name=name,
        stages=len(ipus),
        micro_batches=micro_batches,
        training=training,
        ipus=ipus,
        ticks=Ticks(runs),
    )
