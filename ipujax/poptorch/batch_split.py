"""The split of combined batches into micro-batches, and the combination of their results.

The rows of a combined batch are those of its micro-batches in the order device iteration,
accumulation, replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ipujax.doors.graphs import select_results
from ipujax.doors.torch import to_jax
from ipujax.ground import PopTorchError
from ipujax.poptorch.enums import OutputMode


class BatchSplit(NamedTuple):
    """The split of a combined batch into micro-batches.

    Attributes:
      iterations: the device iterations of a call; in training each is a weight update.
      accumulation: the micro-batches of a replica in a weight update.
      replicas: the number of replicas in this process.
      group_size: the number of replicas that get the same micro-batch.
      is_orthogonal: whether a group's replicas are far apart instead of consecutive.
      process: the index of this process among `processes`, each with as many replicas.
    """

    iterations: int
    accumulation: int
    replicas: int
    group_size: int = 1
    is_orthogonal: bool = False
    process: int = 0
    processes: int = 1

    @property
    def input_count(self) -> int:
        """The number of different micro-batches of a combined batch."""
        return self.count // self.group_size

    @property
    def count(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The number of micro-batches that run in a call."""
        return self.iterations * self.accumulation * self.replicas

    @property
    def indices_among_all_processes(self) -> np.ndarray:
        """The indices of this process's micro-batches among those of all processes."""
        steps = np.arange(self.count * self.processes).reshape(-1, self.processes, self.replicas)
        return steps[:, self.process].ravel()

    def select_first_micro_batch(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the first micro-batch of a tensor; a scalar is the same for all.

        Raises:
          PopTorchError: (a `ValueError`) the rows do not divide into micro-batches.
        """
        if tensor.ndim == 0:
            return tensor
        if tensor.shape[0] % self.input_count:
            factors = f"deviceIterations({self.iterations}) x replicationFactor({self.replicas})"
            factors += f" x gradientAccumulation({self.accumulation})"
            if self.group_size > 1:
                factors += f" / inputReplicaGrouping({self.group_size})"
            raise PopTorchError(
                f"Invalid batch dimension: an input of shape {tuple(tensor.shape)} has "
                f"{tensor.shape[0]} rows, which do not divide into {self.input_count} "
                f"micro-batches: {factors}",
                fix=f"give a combined batch of a multiple of {self.input_count} rows, as "
                "poptorch.DataLoader does",
            )
        return tensor[: tensor.shape[0] // self.input_count]

    def iterate_elements(
        self, tensors: Sequence[Any], keys: np.ndarray
    ) -> Iterator[tuple[Any, ...]]:
        """Iterates over the micro-batches in the order in which the program takes them.

        Args:
          tensors: the inputs of the combined batch.
          keys: the random keys of the micro-batches.
        """
        return zip(*map(self._split_input_into_micro_batches, tensors), keys, strict=True)

    def _split_input_into_micro_batches(self, tensor: torch.Tensor) -> np.ndarray:
        array = np.asarray(to_jax(tensor))
        if array.ndim == 0:
            return np.broadcast_to(array, (self.count,))
        rows = array.reshape(self.input_count, array.shape[0] // self.input_count, *array.shape[1:])
        if self.group_size == 1:
            return rows
        groups = self.replicas // self.group_size
        steps = rows.reshape(-1, groups, *rows.shape[1:])
        replica = np.arange(self.replicas)
        repeated_steps = steps[
            :, replica % groups if self.is_orthogonal else replica // self.group_size
        ]
        return repeated_steps.reshape(self.count, *rows.shape[1:])

    def combine_micro_batches(
        self, results: np.ndarray, mode: OutputMode, period: int = 1
    ) -> np.ndarray:
        """Combines the results of micro-batches to what a call returns.

        Args:
          results: `[micro-batch, ...]` in the order of the inputs.
          mode: the choice of micro-batches.
          period: the period of `OutputMode.EveryN`.
        """
        if self.count == 1:
            return results[0]
        shape = results.shape[1:]
        steps = results.reshape(self.count // self.replicas, self.replicas, *shape)
        steps = select_results(steps, mode.name, period)
        if not shape:
            return steps.reshape(-1) if steps.size > 1 else steps.reshape(())
        return steps.reshape(-1, *shape[1:])
