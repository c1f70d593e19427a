"""On which track of its IPU each step is drawn: slices of one track may not overlap."""

from __future__ import annotations

import numpy as np

from ipujax.report.presentation.perfetto.texts import PROGRAM

_LANES = 1000  # track numbers for each kind
_TITLES = ("compute", "exchange", "sync", "inter-IPU", "host", "streaming memory")


def tracks_of(steps: dict[str, np.ndarray]) -> np.ndarray:
    """int64 [steps]: the track of each.

    Most steps are on that of their IPU's program. Kinds of which any step overlaps others, such as
    input on tiles of its own, have tracks beside it, and further ones where they overlap
    themselves.
    """
    tracks = np.full(len(steps["ipu"]), PROGRAM, dtype=np.int64)
    starts, ends = steps["start_cycle"], steps["start_cycle"] + steps["cycles"]
    order = np.lexsort((ends, starts, steps["ipu"]))
    for own in np.split(order, np.flatnonzero(np.diff(steps["ipu"][order])) + 1):
        if not _overlap(starts[own], ends[own]):
            continue
        program = np.zeros(len(own), dtype=bool)
        for kind in np.unique(steps["kind"][own]).tolist():
            alike = steps["kind"][own] == kind
            both = own[program | alike]
            if _overlap(starts[both], ends[both]):
                lanes = _lanes(starts[own[alike]].tolist(), ends[own[alike]].tolist())
                tracks[own[alike]] = (kind + 1) * _LANES + lanes
            else:
                program |= alike
    return tracks


def title(track: int) -> str:
    """What a track is called."""
    if track == PROGRAM:
        return "program"
    kind, lane = divmod(track - _LANES, _LANES)
    return f"{_TITLES[kind]} {lane + 1}" if lane else _TITLES[kind]


def by_ipu(steps: dict[str, np.ndarray], chosen: np.ndarray) -> dict[int, np.ndarray]:
    """The numbers of some steps by their IPUs, in the order of time."""
    order = np.flatnonzero(chosen)
    ends = steps["start_cycle"] + steps["cycles"]
    order = order[np.lexsort((ends[order], steps["start_cycle"][order], steps["ipu"][order]))]
    ipus = steps["ipu"][order]
    parts = np.split(order, np.flatnonzero(np.diff(ipus)) + 1)
    return {int(steps["ipu"][part[0]]): part for part in parts if len(part)}


def _overlap(starts: np.ndarray, ends: np.ndarray) -> bool:
    """Whether any of some intervals, by start, overlap."""
    return bool((starts[1:] < ends[:-1]).any())


def _lanes(starts: list[int], ends: list[int]) -> np.ndarray:
    """For intervals by start, the first lane that is free then."""
    free: list[int] = []
    lanes: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((i for i, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        lanes.append(lane)
    return np.array(lanes, dtype=np.int64)
