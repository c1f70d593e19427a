"""What a Keras model does in each of its modes, as loops on the device.

Keras's own step is a pure function of the model's arrays and a batch. So many of them as
`steps_per_execution` says are one loop, fed by an infeed: the numbers are Keras's own.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ipujax.driver.stages import Executable
from ipujax.ipu_outfeed_queue import IPUOutfeedMode
from ipujax.keras.batches import Batches
from ipujax.training import Inference, StepOutput, TrainState
from ipujax.training.state import Tree

Arrays = list[jax.Array]


@dc.dataclass(frozen=True, eq=False)
class Program:
    """A `train_function`, `test_function` or `predict_function` of a Keras model.

    Attributes:
      step: Keras's step: state and batch -> what it says, and the new state.
      steps: batches in an execution.
      device: the logical device.
      name: the program's.
      concatenates: whether what all steps say is kept, one after the other; else the last one's.
    """

    step: Callable[[tuple[Arrays, ...], Any], tuple[Tree, tuple[Arrays, ...]]]
    steps: int
    device: str
    name: str
    concatenates: bool = False

    def __call__(self, state: tuple[Arrays, ...], batches: Iterator[Any]) -> tuple[Tree, Any]:
        """Makes an execution: what the steps say, and the new state.

        Raises:
          StopIteration: the data has ended.
        """
        if not isinstance(batches, Batches):  # of train_on_batch and its kin
            batches = Batches(iter(list(itertools.islice(batches, self.steps))))
        carried, said, left = TrainState((), state=state), [], self.steps
        while left and (series := batches.series()) is not None:
            # What comes after a change of form is most often one last, smaller batch.
            advance = self.loop.advance(carried, series, 1 if said else left)
            series.used += advance.steps
            left -= advance.steps
            if advance.steps:
                carried = advance.state
                said.append(advance.results)
        if not said:
            raise StopIteration
        return self._joined(said), carried.state

    def _joined(self, said: list[Tree]) -> Tree:
        if not self.concatenates:
            return said[-1]
        return jax.tree.map(
            lambda *parts: np.concatenate([p.reshape(-1, *p.shape[2:]) for p in parts]), *said
        )

    @functools.cached_property
    def loop(self) -> Inference:
        """The loop on the device."""
        mode = IPUOutfeedMode.ALL if self.concatenates else IPUOutfeedMode.LAST
        return Inference(
            self._one_step,
            steps_per_loop=self.steps,
            outfeed_mode=mode,
            device=self.device,
            name=self.name,
        )

    @property
    def executable(self) -> Executable | None:
        """The program that was compiled last."""
        return self.loop.executable

    def _one_step(self, _: Tree, state: tuple[Arrays, ...], batch: Any) -> StepOutput:
        said, state = self.step(state, batch)
        return StepOutput(send=said, state=state)
