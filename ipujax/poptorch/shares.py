"""Combined batches: the micro-batches of a call, and what they give put together again.

The rows of a combined batch are those of its micro-batches in the order device iteration,
accumulation, replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.arrays import to_jax
from ipujax.poptorch.enums import OutputMode


class Shares(NamedTuple):
    """How a combined batch is cut into micro-batches.

    Attributes:
      iterations: loops on the device in a call; in training each is a weight update.
      accumulation: micro-batches of a replica in a weight update.
      replicas: how many there are.
      together: how many replicas are given the same micro-batch.
      are_apart: whether these are not neighbours, but as far from one another as can be.
      process: which process this is of `processes`, each of which has as many replicas.
    """

    iterations: int
    accumulation: int
    replicas: int
    together: int = 1
    are_apart: bool = False
    process: int = 0
    processes: int = 1

    @property
    def inputs(self) -> int:
        """Micro-batches of a combined batch."""
        return self.count // self.together

    @property
    def count(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Micro-batches that run in a call."""
        return self.iterations * self.accumulation * self.replicas

    @property
    def numbers(self) -> np.ndarray:
        """Those of this process's micro-batches among those of a call of all processes."""
        steps = np.arange(self.count * self.processes).reshape(-1, self.processes, self.replicas)
        return steps[:, self.process].ravel()

    def micro_batch(self, tensor: torch.Tensor) -> torch.Tensor:
        """The first micro-batch of a tensor; a number is the same for all.

        Raises:
          PopTorchError: (a `ValueError`) a batch that cannot be cut so.
        """
        if tensor.ndim == 0:
            return tensor
        if tensor.shape[0] % self.inputs:
            factors = f"deviceIterations({self.iterations}) x replicationFactor({self.replicas})"
            factors += f" x gradientAccumulation({self.accumulation})"
            if self.together > 1:
                factors += f" / inputReplicaGrouping({self.together})"
            raise PopTorchError(
                f"Invalid batch dimension: an input of shape {tuple(tensor.shape)} has "
                f"{tensor.shape[0]} rows, which do not divide into {self.inputs} micro-batches: "
                f"{factors}",
                fix=f"give a combined batch of a multiple of {self.inputs} rows, as "
                "poptorch.DataLoader does",
            )
        return tensor[: tensor.shape[0] // self.inputs]

    def elements(self, tensors: Sequence[Any], keys: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """The micro-batches, in the order in which the program takes them.

        Args:
          tensors: of the inputs.
          keys: for each micro-batch that of its random numbers.
        """
        return zip(*map(self._cut, tensors), keys, strict=True)

    def _cut(self, tensor: torch.Tensor) -> np.ndarray:
        array = np.asarray(to_jax(tensor))
        if array.ndim == 0:
            return np.broadcast_to(array, (self.count,))
        rows = array.reshape(self.inputs, array.shape[0] // self.inputs, *array.shape[1:])
        if self.together == 1:
            return rows
        groups = self.replicas // self.together
        steps = rows.reshape(-1, groups, *rows.shape[1:])
        replica = np.arange(self.replicas)
        given = steps[:, replica % groups if self.are_apart else replica // self.together]
        return given.reshape(self.count, *rows.shape[1:])

    def combined(self, results: np.ndarray, mode: OutputMode, period: int = 1) -> np.ndarray:
        """What a call returns of what its micro-batches gave.

        Args:
          results: `[micro-batch, ...]` in the order of the inputs.
          mode: which of them.
          period: for `OutputMode.EveryN`.
        """
        if self.count == 1:
            return results[0]
        shape = results.shape[1:]
        steps = results.reshape(self.count // self.replicas, self.replicas, *shape)
        if mode is OutputMode.EveryN:
            steps = steps[period - 1 :: period]
        elif mode is OutputMode.Final:
            steps = steps[-1:]
        elif mode is OutputMode.Sum:
            steps = steps.sum(0, keepdims=True, dtype=steps.dtype)
        if not shape:
            return steps.reshape(-1) if steps.size > 1 else steps.reshape(())
        return steps.reshape(-1, *shape[1:])
