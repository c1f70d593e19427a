"""The breakdown of a call's cycles: each cycle of each IPU is counted for one cause."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from lowering.machine.trace import (
    KINDS,
    Block,
    Group,
    On,
    Trace,
    count_busy_cycles,
    distinct_children,
)

CAUSES = ("work", "exchange", "copies", "update", "host", "streaming memory", "imbalance", "bubble")
"""The causes of the cycles of a call, in the order of reports.

* work: computing, forward and backward;
* exchange: from tile to tile of an IPU, and the syncs before it;
* copies: between IPUs and between replicas, and the syncs before them;
* update: computing and exchange of the weight update;
* host: queues, copies and calls of the host, where nothing hides them;
* streaming memory: loads from it and stores to it;
* imbalance: waiting for another IPU, or for the longest task of a tick;
* bubble: waiting in ticks of a pipeline in which the IPU has no task, or fewer than in others.
"""

_STEPS = ("work", "exchange", "copies", "update", "host", "streaming memory")
_CAUSE_NAME_OF_KIND = {
    "compute": "work",
    "exchange": "exchange",
    "sync": "exchange",
    "inter_ipu": "copies",
    "host": "host",
    "remote": "streaming memory",
}
_CAUSE_OF_KIND = np.array([_STEPS.index(_CAUSE_NAME_OF_KIND[kind]) for kind in KINDS])
_COPIES, _UPDATE, _SYNC = _STEPS.index("copies"), _STEPS.index("update"), KINDS.index("sync")
_TURNS_TO_UPDATE = np.array([_CAUSE_NAME_OF_KIND[kind] in ("work", "exchange") for kind in KINDS])
_COPY_SYNC_SUFFIX = "/sync"  # how the names of syncs before copies end
_HOST = KINDS.index("host")


def break_down_cycles(
    trace: Trace, cycles: int, bubble: Mapping[int, int], updates: Collection[int], num_ipus: int
) -> Mapping[str, np.ndarray]:
    """Splits the cycles of a call of each IPU by cause.

    Args:
      trace: the steps of each IPU.
      cycles: cycles of the call.
      bubble: cycles that each IPU waits in ticks without a task.
      updates: numbers of the operations that belong to weight updates.
      num_ipus: IPUs of a replica.

    Returns:
      For each of `CAUSES` int64 [ipus]; those of one IPU add up to `cycles`.
    """

    def classify_steps(block: Block) -> np.ndarray:
        of_copy = np.array([name.endswith(_COPY_SYNC_SUFFIX) for name in block.names])[block.name]
        of_update = np.array([n in updates for n in block.operations])[block.name]
        cause_of_step = _CAUSE_OF_KIND[block.kind]
        is_copy_sync = of_copy & (block.kind == _SYNC)
        cause_of_step = np.where(of_update & _TURNS_TO_UPDATE[block.kind], _UPDATE, cause_of_step)
        return np.where(is_copy_sync, _COPIES, cause_of_step)

    busy_cycles = count_busy_cycles(trace, num_ipus, len(_STEPS), classify_steps)
    found = {name: busy_cycles[:, i] for i, name in enumerate(_STEPS)}
    found["host"] = found["host"] - _count_hidden_host_cycles(trace, num_ipus)
    found["bubble"] = np.array([bubble.get(ipu, 0) for ipu in range(num_ipus)], dtype=np.int64)
    found["imbalance"] = cycles - np.sum(list(found.values()), axis=0)
    return {name: found[name] for name in CAUSES}


def _count_hidden_host_cycles(trace: Trace, num_ipus: int) -> np.ndarray:
    """Returns int64 [ipus]: cycles in which I/O tiles serve queues while other tiles work.

    Only direct children of one group overlap: all IPUs wait for each other where loops and
    tasks begin and end.
    """
    total = np.zeros(num_ipus, dtype=np.int64)
    if isinstance(trace, Group):
        for ipu, intervals in _intervals_of_queue_ipus(trace).items():
            total[ipu] += _count_overlap(np.array(intervals))
    if isinstance(trace, On):
        return total
    for part, count in distinct_children(trace):
        total += _count_hidden_host_cycles(part, num_ipus) * count
    return total


def _intervals_of_queue_ipus(group: Group) -> Mapping[int, list[tuple[int, int]]]:
    """Collects (start, end) of all steps of one IPU, for each IPU that has host steps."""
    intervals_by_ipu: dict[int, list[tuple[int, int]]] = {}
    queue_ipus: set[int] = set()
    for child, start in zip(group.children, group.offset.tolist(), strict=True):
        if isinstance(child, On):
            ipu = child.ipu
        elif isinstance(child, Block) and child.num_steps and (child.ipu == child.ipu[0]).all():
            ipu = int(child.ipu[0])
            if (child.kind == _HOST).all():
                queue_ipus.add(ipu)
        else:
            continue
        intervals_by_ipu.setdefault(ipu, []).append((start, start + child.span))
    return {ipu: intervals_by_ipu[ipu] for ipu in queue_ipus}


def _count_overlap(intervals: np.ndarray) -> int:
    """Returns the total length of intervals less the length of their union."""
    starts, ends = intervals[np.argsort(intervals[:, 0], kind="stable")].T
    latest_end = np.maximum.accumulate(ends)
    covered = np.maximum(ends, latest_end) - np.maximum(
        starts, np.concatenate([[0], latest_end[:-1]])
    )
    return int((ends - starts).sum() - np.maximum(covered, 0).sum())
