"""Where the cycles of a call go: every cycle of an IPU is counted for one cause."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from lowering.machine.trace import KINDS, Block, Group, On, Trace, busy, parts

CAUSES = ("work", "exchange", "copies", "update", "host", "imbalance", "bubble")
"""What the cycles of a call go to, in the order in which reports show them.

* work: computing, forward and backward;
* exchange: from tile to tile of an IPU, and the syncs before it;
* copies: between IPUs and between replicas, and the syncs before them;
* update: computing and exchange of the weight update;
* host: queues, copies and calls of the host, and streaming memory, where nothing hides them;
* imbalance: waiting for another IPU, or for the longest task of a tick;
* bubble: waiting in ticks of a pipeline in which the IPU has no task, or fewer than in others.
"""

_STEPS = ("work", "exchange", "copies", "update", "host")
_OF_KIND = {
    "compute": "work",
    "exchange": "exchange",
    "sync": "exchange",
    "inter_ipu": "copies",
    "host": "host",
    "remote": "host",
}
_CAUSE_OF_KIND = np.array([_STEPS.index(_OF_KIND[kind]) for kind in KINDS])
_COPIES, _UPDATE, _SYNC = _STEPS.index("copies"), _STEPS.index("update"), KINDS.index("sync")
_TURNS_TO_UPDATE = np.array([_OF_KIND[kind] in ("work", "exchange") for kind in KINDS])
_OF_A_COPY = "/sync"  # how the names of syncs before copies end
_HOST = KINDS.index("host")


def break_down(
    trace: Trace, cycles: int, bubble: Mapping[int, int], updates: Collection[int], num_ipus: int
) -> Mapping[str, np.ndarray]:
    """Splits a call of each IPU by cause.

    Args:
      trace: what each IPU does when.
      cycles: of the call.
      bubble: what each IPU waits in ticks without a task.
      updates: numbers of the operations that belong to weight updates.
      num_ipus: of a replica.

    Returns:
      For each of `CAUSES` int64 [ipus]; those of one IPU add up to `cycles`.
    """

    def cause(block: Block) -> np.ndarray:
        of_copy = np.array([name.endswith(_OF_A_COPY) for name in block.names])[block.name]
        of_update = np.array([n in updates for n in block.operations])[block.name]
        found = _CAUSE_OF_KIND[block.kind]
        copying = of_copy & (block.kind == _SYNC)
        found = np.where(of_update & _TURNS_TO_UPDATE[block.kind], _UPDATE, found)
        return np.where(copying, _COPIES, found)

    spent = busy(trace, num_ipus, len(_STEPS), cause)
    found = {name: spent[:, i] for i, name in enumerate(_STEPS)}
    found["host"] = found["host"] - _hidden(trace, num_ipus)
    found["bubble"] = np.array([bubble.get(ipu, 0) for ipu in range(num_ipus)], dtype=np.int64)
    found["imbalance"] = cycles - np.sum(list(found.values()), axis=0)
    return {name: found[name] for name in CAUSES}


def _hidden(trace: Trace, num_ipus: int) -> np.ndarray:
    """int64 [ipus]: cycles in which queues of I/O tiles pass elements while the others work.

    Only what stands beside each other in a group overlaps: all wait for each other where loops and
    tasks begin and end.
    """
    total = np.zeros(num_ipus, dtype=np.int64)
    if isinstance(trace, Group):
        for ipu, intervals in _beside_queues(trace).items():
            total[ipu] += _overlap(np.array(intervals))
    if isinstance(trace, On):
        return total
    for part, count in parts(trace):
        total += _hidden(part, num_ipus) * count
    return total


def _beside_queues(group: Group) -> Mapping[int, list[tuple[int, int]]]:
    """Starts and ends of what is of one IPU, by IPU, for those of them that queues feed."""
    found: dict[int, list[tuple[int, int]]] = {}
    queues: set[int] = set()
    for child, start in zip(group.children, group.offset.tolist(), strict=True):
        if isinstance(child, On):
            ipu = child.ipu
        elif isinstance(child, Block) and child.num_steps and (child.ipu == child.ipu[0]).all():
            ipu = int(child.ipu[0])
            if (child.kind == _HOST).all():
                queues.add(ipu)
        else:
            continue
        found.setdefault(ipu, []).append((start, start + child.span))
    return {ipu: found[ipu] for ipu in queues}


def _overlap(intervals: np.ndarray) -> int:
    """How much intervals are longer than what they cover together."""
    starts, ends = intervals[np.argsort(intervals[:, 0], kind="stable")].T
    reached = np.maximum.accumulate(ends)
    covered = np.maximum(ends, reached) - np.maximum(starts, np.concatenate([[0], reached[:-1]]))
    return int((ends - starts).sum() - np.maximum(covered, 0).sum())
