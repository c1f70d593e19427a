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
      work: seconds of all its tasks on one micro-batch.
      kept_bytes: bytes that a stage needs however many micro-batches wait in it.
      waiting_bytes: bytes that each of them takes.
    """

    work: np.ndarray
    kept_bytes: np.ndarray
    waiting_bytes: np.ndarray


@dc.dataclass(frozen=True, eq=False)
class StageCosts:
    """The seconds and bytes of the stages of some costs.

    All methods take arrays of positions, 0 to the number of segments, and give float64 arrays of
    the same shape.

    Attributes:
      costs: the costs of the segments.
      recompute: whether stages keep only what enters them, and run their forward pass again.
      splits_backward: whether the gradients of weights are tasks of their own.
    """

    costs: Costs
    recompute: bool
    splits_backward: bool

    @functools.cached_property
    def known_bounds(self) -> dict[object, np.ndarray]:
        """The bounds that were found of these costs, see `bounds`; they go when the costs go."""
        return {}

    @functools.cached_property
    def prefixes(self) -> dict[str, np.ndarray]:
        """float64 [segments + 1]: sums over the segments before each, by what is summed."""
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
        """Bytes of a stage's parameters, with its copies of those of stages before."""
        own = self._sum_between("parameters", starts, ends)
        return own + self._copied_bytes[starts, ends] if self.costs.tied_bytes else own

    @functools.cached_property
    def _copied_bytes(self) -> np.ndarray:
        """The bytes of parameters that stages before have too, float64 [starts, ends]."""
        copied = np.zeros((len(self.costs) + 1,) * 2)
        for first, last, bytes_ in self.costs.tied_bytes:
            copied[first + 1 : last + 1, last + 1 :] += bytes_
        return copied

    def activation_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Bytes that one micro-batch leaves for a stage's backward pass."""
        kept = self._sum_between("activations", starts, ends)
        return kept - self._shared_bytes[starts, ends] if self.costs.shared_bytes else kept

    @functools.cached_property
    def _shared_bytes(self) -> np.ndarray:
        """The bytes that the segments of a stage would count twice, float64 [starts, ends]."""
        shared = np.zeros((len(self.costs) + 1,) * 2)
        for first, last, bytes_ in self.costs.shared_bytes:
            shared[first, last + 1] += bytes_
        return shared[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)

    @functools.cached_property
    def boundary_bytes(self) -> np.ndarray:
        """float64 [segments + 1]: the bytes that pass if a stage begins at each segment."""
        count = len(self.costs)
        passing = np.zeros(count + 1)
        passing[1:count] = self.costs.cut_bytes
        for first, last, bytes_ in self.costs.skips:
            passing[first + 1 : last + 1] += bytes_
        return passing

    @functools.cached_property
    def boundary_seconds(self) -> np.ndarray:
        """float64 [segments + 1]: how long what passes travels to other IPUs."""
        seconds = self.costs.latency + self.boundary_bytes / self.costs.bytes_per_second
        seconds[[0, -1]] = 0.0
        return seconds

    def left_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Bytes that each micro-batch leaves between a stage's forward and backward tasks."""
        if self.recompute:
            return self.boundary_bytes[starts]
        return self.activation_bytes(starts, ends)

    def again_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Bytes of what a backward task computes again, while its stage is at work."""
        return self.activation_bytes(starts, ends) * self.recompute

    @functools.cached_property
    def left_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """`left_bytes` as a number for a stage's first segment, and one for what follows it.

        Where segments share bytes, this is the least that stages may leave.
        """
        if self.recompute:
            return self.boundary_bytes, np.zeros(len(self.costs) + 1)
        return -self.prefixes["least activations"], self.prefixes["least activations"]

    def offload_seconds(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Seconds in which what a micro-batch leaves goes to host memory, or comes back."""
        return self.left_bytes(starts, ends) / self.costs.host_bytes_per_second

    @functools.cached_property
    def pairs(self) -> PairTables:
        """The tables of all possible stages."""
        positions = np.arange(len(self.costs) + 1)
        starts, ends = np.meshgrid(positions, positions, indexing="ij")
        is_empty = ends <= starts
        ends = np.maximum(starts, ends)
        work = self.forward(starts, ends) + self.backward(starts, ends) + self.weight(starts, ends)
        kept = self.parameter_bytes(starts, ends) + self.workspace_bytes(starts, ends)
        kept += self.again_bytes(starts, ends)
        return PairTables(
            work=np.where(is_empty, np.inf, work),
            kept_bytes=np.where(is_empty, np.inf, kept),
            waiting_bytes=self.left_bytes(starts, ends),
        )

    @functools.cached_property
    def _workspace_tables(self) -> list[np.ndarray]:
        """Returns the largest work space of 1, 2, 4, ... segments from each one on."""
        tables = [np.append(np.array(self.costs.workspace_bytes, float), 0.0)]
        width = 1
        while 2 * width <= len(self.costs):
            last = tables[-1]
            tables.append(np.maximum(last, np.concatenate([last[width:], np.zeros(width)])))
            width *= 2
        return tables

    def workspace_bytes(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The largest work space of a stage's segments, in bytes."""
        levels = np.log2(np.maximum(ends - starts, 1)).astype(int)
        tables = np.stack(self._workspace_tables)
        return np.maximum(tables[levels, starts], tables[levels, ends - (1 << levels)])
