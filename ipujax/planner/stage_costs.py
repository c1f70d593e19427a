"""Sums of costs over the segments of stages, for many cuts at once."""

from __future__ import annotations

import dataclasses as dc
import functools

import numpy as np

from ipujax.planner.costs import Costs

Cuts = np.ndarray
"""int64 [cuts, stages + 1]: for each cut, where its stages begin, and the number of segments."""


@dc.dataclass(frozen=True, eq=False)
class PairTables:
    """The seconds and bytes of all possible stages, float64 [starts, ends]; inf for empty stages.

    Attributes:
      work: seconds of all tasks of a stage on one micro-batch.
      fixed_bytes: bytes that a stage needs however many micro-batches wait in it.
      stash_bytes: bytes that each micro-batch which waits in it takes.
    """

    work: np.ndarray
    fixed_bytes: np.ndarray
    stash_bytes: np.ndarray


@dc.dataclass(frozen=True, eq=False)
class StageCosts:
    """The seconds and bytes of stages, summed from the costs of their segments.

    All methods take arrays of positions: those where stages start and end, from 0 to the number of
    segments. They return float64 arrays of the same shape. The stash is what a stage keeps of a
    micro-batch between its forward and its backward task.

    Attributes:
      costs: the costs of the segments.
      recompute: whether stages stash only what enters them, and run their forward pass again.
      splits_backward: whether the gradients of weights are tasks of their own.
    """

    costs: Costs
    recompute: bool
    splits_backward: bool

    @functools.cached_property
    def bound_cache(self) -> dict[object, np.ndarray]:
        """A cache of bounds for these costs, which `bounds` fills; it goes when the costs go."""
        return {}

    @functools.cached_property
    def prefixes(self) -> dict[str, np.ndarray]:
        """Sums over the segments before each one, float64 [segments + 1], by what is summed.

        "least activations" counts once what several segments keep.
        """
        costs = self.costs
        backward = np.array(costs.backward)
        weight = np.array(costs.weight if costs.weight is not None else (0.0,) * len(costs))
        rows = {
            "forward": np.array(costs.forward),
            "backward": backward + self.recompute * np.array(costs.forward),
            "weight": weight,
            "update": np.array(costs.update),
            "parameters": np.array(costs.parameter_bytes),
            "activations": np.array(costs.activation_bytes),
            "least activations": np.array(costs.activation_bytes),
        }
        for _, last, bytes_ in costs.shared_bytes:
            rows["least activations"][last] -= bytes_
        if not self.splits_backward:
            rows["backward"], rows["weight"] = rows["backward"] + weight, np.zeros(len(costs))
        return {name: np.concatenate([[0.0], np.cumsum(row)]) for name, row in rows.items()}

    def _sum_between(self, name: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        prefix = self.prefixes[name]
        return prefix[ends] - prefix[starts]

    def forward(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Seconds of a forward task."""
        return self._sum_between("forward", starts, ends)

    def backward(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Seconds of a backward task, with all that is computed in it."""
        return self._sum_between("backward", starts, ends)

    def weight(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Seconds of a task that makes gradients of weights; 0 where backward tasks do."""
        return self._sum_between("weight", starts, ends)

    def update(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Seconds of the update of a stage's weights, but for what passes between IPUs."""
        return self._sum_between("update", starts, ends)

    def parameter_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Bytes of a stage's parameters, with its copies of tied ones of stages before."""
        unshared = self._sum_between("parameters", starts, ends)
        return unshared + self._copied_bytes[starts, ends] if self.costs.tied_bytes else unshared

    @functools.cached_property
    def _copied_bytes(self) -> np.ndarray:
        """The bytes of tied parameters that stages before have too, float64 [starts, ends]."""
        copied = np.zeros((len(self.costs) + 1,) * 2)
        for first, last, bytes_ in self.costs.tied_bytes:
            copied[first + 1 : last + 1, last + 1 :] += bytes_
        return copied

    def activation_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Bytes of activations that a stage's backward task on a micro-batch needs."""
        activations = self._sum_between("activations", starts, ends)
        return (
            activations - self._shared_bytes[starts, ends]
            if self.costs.shared_bytes
            else activations
        )

    @functools.cached_property
    def _shared_bytes(self) -> np.ndarray:
        """The bytes that the segments of a stage would count twice, float64 [starts, ends]."""
        shared = np.zeros((len(self.costs) + 1,) * 2)
        for first, last, bytes_ in self.costs.shared_bytes:
            shared[first, last + 1] += bytes_
        return shared[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)

    @functools.cached_property
    def boundary_bytes(self) -> np.ndarray:
        """The bytes that pass to a stage that begins with each segment, float64 [segments + 1]."""
        count = len(self.costs)
        passing = np.zeros(count + 1)
        passing[1:count] = self.costs.cut_bytes
        for first, last, bytes_ in self.costs.skips:
            passing[first + 1 : last + 1] += bytes_
        return passing

    @functools.cached_property
    def boundary_seconds(self) -> np.ndarray:
        """The seconds that these bytes travel to another IPU, float64 [segments + 1]."""
        seconds = self.costs.latency + self.boundary_bytes / self.costs.bytes_per_second
        seconds[[0, -1]] = 0.0
        return seconds

    def stash_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Bytes that a stage keeps of a micro-batch between its forward and its backward task."""
        if self.recompute:
            return self.boundary_bytes[starts]
        return self.activation_bytes(starts, ends)

    def recomputation_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Bytes of the activations that a backward task recomputes, while its stage is at work."""
        return self.activation_bytes(starts, ends) * self.recompute

    @functools.cached_property
    def stash_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The `stash_bytes` as a sum of a number for a stage's start, and one for its end.

        float64 [segments + 1] each. Where segments share bytes, it is the least that stages keep.
        """
        if self.recompute:
            return self.boundary_bytes, np.zeros(len(self.costs) + 1)
        return -self.prefixes["least activations"], self.prefixes["least activations"]

    def offload_seconds(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Seconds in which the stash of a micro-batch goes to host memory, or comes back."""
        return self.stash_bytes(starts, ends) / self.costs.host_bytes_per_second

    @functools.cached_property
    def pairs(self) -> PairTables:
        """The tables of all possible stages."""
        positions = np.arange(len(self.costs) + 1)
        starts, ends = np.meshgrid(positions, positions, indexing="ij")
        is_empty = ends <= starts
        ends = np.maximum(starts, ends)
        work = self.forward(starts, ends) + self.backward(starts, ends) + self.weight(starts, ends)
        fixed_bytes = self.parameter_bytes(starts, ends) + self.workspace_bytes(starts, ends)
        fixed_bytes += self.recomputation_bytes(starts, ends)
        return PairTables(
            work=np.where(is_empty, np.inf, work),
            fixed_bytes=np.where(is_empty, np.inf, fixed_bytes),
            stash_bytes=self.stash_bytes(starts, ends),
        )

    @functools.cached_property
    def _workspace_tables(self) -> list[np.ndarray]:
        """The largest work space of 1, 2, 4, ... segments from each one on."""
        tables = [np.append(np.array(self.costs.workspace_bytes, float), 0.0)]
        width = 1
        while 2 * width <= len(self.costs):
            widest = tables[-1]
            tables.append(np.maximum(widest, np.concatenate([widest[width:], np.zeros(width)])))
            width *= 2
        return tables

    def workspace_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The largest work space of a stage's segments, in bytes."""
        levels = np.log2(np.maximum(ends - starts, 1)).astype(int)
        tables = np.stack(self._workspace_tables)
        return np.maximum(tables[levels, starts], tables[levels, ends - (1 << levels)])
