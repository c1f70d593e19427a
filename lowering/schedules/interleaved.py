"""Interleaved: every IPU runs one stage in every tick, forward and backward in turn."""

from __future__ import annotations

from lowering.schedules.rotations import check_multiple, offsets, rotate
from lowering.schedules.schedule import Ipus, Schedule, check_apart, check_sizes, place


def interleaved(
    stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
) -> Schedule:
    """As many micro-batches at once as never meet on an IPU.

    With K of them and a word of N stages (`stages` for inference, twice that for training), I
    micro-batches take N * (I / K + 1) ticks. When training, K is `stages`, and stage s keeps the
    activations of `stages` - s micro-batches.

    Args:
      stages: the forward stages.
      micro_batches: a multiple of K.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None puts stage i on IPU i.

    Raises:
      ScheduleError: a number of micro-batches that does not fit, or training with two stages on
        one IPU.
    """
    check_sizes(stages, micro_batches, training)
    placed = place(stages, ipus)
    if training:
        check_apart(
            placed,
            "the interleaved schedule cannot train with stages {} and {} both on IPU {}: it runs "
            "one stage at a time on an IPU",
            fix="give every stage IPUs of its own, or use grouped or sequential "
            "(for inference, interleaved is fine)",
        )
    starts = offsets("interleaved", stages, training=training, ipus=placed)
    check_multiple("interleaved", micro_batches, len(starts))
    return rotate("interleaved", starts, placed, micro_batches, training)
