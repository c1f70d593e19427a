"""A check whether the two stages of each IPU of a V fit together, for cuts of whole segments.

In a V, IPU i has stage i and the last but i, so IPUs take segments from both ends of the model, and
the first IPUs have all segments before one position and behind another. For each first position,
the earliest second one is found from IPU to IPU. The earlier the better: the stages that are left
then end earlier, and need no more memory.
"""

from __future__ import annotations

import numpy as np

from ipujax.planner.alternative import Alternative
from ipujax.planner.moments import Moments
from ipujax.planner.stage_costs import StageCosts


def is_folded(alternative: Alternative) -> bool:
    """Returns whether stages are folded: each IPU i has stage i and the last but i."""
    ipus = range(alternative.num_ipus)
    return alternative.device_mapping == (*ipus, *reversed(ipus))


def may_fit_folded(alternative: Alternative, tolerance: float) -> bool:
    """Returns whether a cut may fit in memory; False if there is none.

    Args:
      alternative: one whose stages are folded.
      tolerance: a share of an IPU's memory that may be a rounding error.
    """
    needs = _StageNeeds(alternative.stage_costs)
    last = len(alternative.stage_costs.costs)
    behind = np.full(last + 1, last + 1)  # for each first position, the earliest second one
    behind[0] = last
    for moments, memory in zip(alternative.moments, alternative.memory, strict=True):
        reached = np.full(last + 1, last + 1)
        for start in np.flatnonzero(behind <= last).tolist():
            ends, earliest = needs.extend(
                start, int(behind[start]), moments, memory * (1 + tolerance)
            )
            reached[ends] = np.minimum(reached[ends], earliest)
        behind = reached
    return bool((behind <= np.arange(last + 1)).any())


_PARAMETERS, _WORK_SPACE, _STASH, _RECOMPUTED = range(4)  # the rows of what stages need


class _StageNeeds:
    """The bytes that stages need, those included that have no segments.

    Args:
      costs: the costs of stages.
    """

    def __init__(self, costs: StageCosts):
        positions = np.arange(len(costs.costs) + 1)
        starts, ends = np.meshgrid(positions, positions, indexing="ij")
        has_segments = ends > starts
        ends = np.maximum(starts, ends)
        needs = (
            costs.parameter_bytes(starts, ends),
            costs.workspace_bytes(starts, ends),
            costs.stash_bytes(starts, ends),
            costs.recomputation_bytes(starts, ends),
        )
        self._needs = np.array([np.where(has_segments, bytes_, 0.0) for bytes_ in needs])

    def extend(
        self, start: int, behind: int, moments: Moments, memory: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ends that a first stage may have, and the earliest start of a second one.

        Args:
          start: where the first stage begins.
          behind: where the second stage ends; it may begin there, and have no segments.
          moments: when the IPU may be fullest.
          memory: the bytes of the IPU.
        """
        positions = np.arange(start, behind + 1) if behind > start else np.array([start])
        first = self._needs[:, start, positions]
        second = self._needs[:, positions, max(behind, start)]
        waiting, working = moments.waiting.T[..., None], moments.working.T[..., None]
        first_activations, second_activations = (
            waiting[number] * rows[_STASH] + working[number] * rows[_RECOMPUTED]
            for number, rows in enumerate((first, second))
        )
        is_end = first_activations.max(axis=0) + first[_PARAMETERS] + first[_WORK_SPACE] <= memory
        is_start = (
            second_activations.max(axis=0) + second[_PARAMETERS] + second[_WORK_SPACE] <= memory
        )
        ends, starts = positions[is_end], positions[is_start]
        first, second = first[:, is_end, None], second[:, None, is_start]
        most_activations = np.zeros((len(ends), len(starts)))
        for of_first, of_second in zip(
            first_activations[:, is_end], second_activations[:, is_start], strict=True
        ):
            np.maximum(most_activations, of_first[:, None] + of_second, out=most_activations)
        needed = most_activations + first[_PARAMETERS] + second[_PARAMETERS]
        needed += np.maximum(first[_WORK_SPACE], second[_WORK_SPACE])
        fits = needed <= memory
        fits &= starts >= ends[:, None]
        may_end = fits.any(axis=1)
        return ends[may_end], starts[fits.argmax(axis=1)[may_end]]
