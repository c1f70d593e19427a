"""Chooses the track of its IPU on which each step is drawn; slices of a track may not overlap."""

from __future__ import annotations

import numpy as np

from ipujax.report.presentation.perfetto.event_text import PROGRAM

_LANES = 1000  # track numbers for each kind
_TITLES = ("compute", "exchange", "sync", "inter-IPU", "host", "streaming memory")


def assign_tracks(steps: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the track of each step, int64 [steps].

    Most steps are on the track of their IPU's program. Kinds with overlapping steps, such as
    input on tiles of its own, have tracks beside it, and further ones where they overlap
    themselves.
    """
    tracks = np.full(len(steps["ipu"]), PROGRAM, dtype=np.int64)
    starts, ends = steps["start_cycle"], steps["start_cycle"] + steps["cycles"]
    order = np.lexsort((ends, starts, steps["ipu"]))
    for step_numbers in np.split(order, np.flatnonzero(np.diff(steps["ipu"][order])) + 1):
        if not _do_intervals_overlap(starts[step_numbers], ends[step_numbers]):
            continue
        is_on_program_track = np.zeros(len(step_numbers), dtype=bool)
        for kind in np.unique(steps["kind"][step_numbers]).tolist():
            is_of_kind = steps["kind"][step_numbers] == kind
            combined_steps = step_numbers[is_on_program_track | is_of_kind]
            if _do_intervals_overlap(starts[combined_steps], ends[combined_steps]):
                lanes = _assign_free_lanes(
                    starts[step_numbers[is_of_kind]].tolist(),
                    ends[step_numbers[is_of_kind]].tolist(),
                )
                tracks[step_numbers[is_of_kind]] = (kind + 1) * _LANES + lanes
            else:
                is_on_program_track |= is_of_kind
    return tracks


def track_title(track: int) -> str:
    """Returns the title of a track."""
    if track == PROGRAM:
        return "program"
    kind, lane = divmod(track - _LANES, _LANES)
    return f"{_TITLES[kind]} {lane + 1}" if lane else _TITLES[kind]


def group_steps_by_ipu(
    steps: dict[str, np.ndarray], is_included: np.ndarray
) -> dict[int, np.ndarray]:
    """Returns the numbers of some steps by their IPUs, in the order of time."""
    order = np.flatnonzero(is_included)
    ends = steps["start_cycle"] + steps["cycles"]
    order = order[np.lexsort((ends[order], steps["start_cycle"][order], steps["ipu"][order]))]
    ipus = steps["ipu"][order]
    parts = np.split(order, np.flatnonzero(np.diff(ipus)) + 1)
    return {int(steps["ipu"][part[0]]): part for part in parts if len(part)}


def _do_intervals_overlap(starts: np.ndarray, ends: np.ndarray) -> bool:
    """Returns whether any of some intervals, sorted by start, overlap."""
    return bool((starts[1:] < ends[:-1]).any())


def _assign_free_lanes(starts: list[int], ends: list[int]) -> np.ndarray:
    """Returns for intervals, sorted by start, the first lane that is free then."""
    free: list[int] = []
    lanes: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((i for i, busy_until in enumerate(free) if busy_until <= start), len(free))
        free[lane : lane + 1] = [end]
        lanes.append(lane)
    return np.array(lanes, dtype=np.int64)
