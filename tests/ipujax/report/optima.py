"""Writes the shortest times that the playground knows, all proven by `schedules.search`.

`python -m tests.ipujax.report.optima`; needs the extra `plan`, and some minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

from ipujax import schedules
from tests.harness import ROOT

FILE = ROOT / "ipujax" / "report" / "presentation" / "playground" / "optima.js"
MOST_IPUS, MOST_MICRO_BATCHES = 4, 8
BUDGET = 120.0  # seconds for one
# What is searched: stages of an IPU, and how long the tasks of a stage take.
KINDS: Mapping[str, tuple[int, Mapping[str, object]]] = {
    "straight": (1, {"backward": 2.0, "weight": 0.0}),
    "straightSplit": (1, {}),
    "vSplit": (2, {"placement": "v"}),
}
HEAD = """\
// The shortest times of all orders, proven by `schedules.search`.
// Written by tests/ipujax/report/optima.py.

/**
 * By kind, IPUs and the micro-batches for which an IPU has memory: the times for 1, 2 and more
 * micro-batches, where F, B and W of a stage each take 1; null where none is proven. In a V an IPU
 * has two stages.
 */
"""


def find_optimum(kind: str, ipus: int, memory: int, micro_batches: int) -> float | None:
    """Returns the shortest time; None if it was not proven to be that in time."""
    stages, arguments = KINDS[kind]
    found = schedules.search(
        stages * ipus, micro_batches, memory=memory, budget_seconds=BUDGET, **arguments
    )
    return found.makespan if found.proven else None


def list_rows() -> list[tuple[str, int, int]]:
    """Returns the kind, the IPUs and the memory of each row."""
    return [
        (kind, ipus, memory)
        for kind in KINDS
        for ipus in range(2, MOST_IPUS + 1)
        for memory in range(1, ipus + 1)
    ]


def main() -> None:
    """Searches for all, and writes the file."""
    lines = ["export const OPTIMA = {"]
    for kind, ipus, memory in list_rows():
        times = [find_optimum(kind, ipus, memory, m + 1) for m in range(MOST_MICRO_BATCHES)]
        texts = ", ".join("null" if time is None else f"{time:g}" for time in times)
        lines.append(f'  "{kind} {ipus} {memory}": [{texts}],')
    FILE.write_text(HEAD + "\n".join([*lines, "};"]) + "\n", "utf-8")


if __name__ == "__main__":
    main()
