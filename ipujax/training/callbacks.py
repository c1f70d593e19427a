"""What happens beside a run on the host: callbacks, and what they see of it."""

from __future__ import annotations

import jax
import numpy as np

from ipujax.training.checks import check
from ipujax.training.state import TrainState, Tree


@check.guard
class Run:
    """A `fit`, `evaluate` or `predict` under way: what callbacks see and may stop.

    Attributes:
      state: after the last device loop.
      steps: how many are to be made in all; None until the data ends.
      done: how many have been made.
      results_per_step: how often a step sends results.
      replicas: copies of the graph in this process; with several, results have an axis of them.
      exhausted: whether the data has ended.
      stopped: whether somebody has asked for the end.
    """

    def __init__(self, state: TrainState, steps: int | None, results_per_step: int):
        self.state, self.steps, self.results_per_step = state, steps, results_per_step
        self.done, self.replicas = 0, 1
        self.exhausted = self.stopped = False

    def request_stop(self) -> None:
        """Ends the run after the device loop that is under way."""
        self.stopped = True

    @property
    def is_over(self) -> bool:
        """Whether no device loop comes after this one."""
        return self.stopped or self.exhausted or self.done == self.steps


@check.guard
class Callback:
    """Told what a run does; override what is of interest."""

    def begin(self, run: Run) -> None:
        """The program is traced, and nothing has been run."""

    def before_run(self, run: Run) -> None:
        """A device loop is about to run."""

    def result(self, run: Run, result: Tree) -> None:
        """One result, `[(replicas,) ...]`, while the device loop goes on; from another thread."""

    def after_run(self, run: Run, results: Tree) -> None:
        """A device loop has ended.

        Args:
          run: whose `state` is the new one.
          results: what the loop has sent, NumPy arrays `[results, (replicas,) ...]`; without the
            first axis if the outfeed keeps the last ones only.
        """

    def end(self, run: Run) -> None:
        """The run has ended without an error."""

    @property
    def is_live(self) -> bool:
        """Whether it wants every result as soon as it is there."""
        return type(self).result is not Callback.result


@check.guard
class History(Callback):
    """Keeps what the device loops of a run have sent; for an outfeed that keeps all."""

    def __init__(self) -> None:
        self._loops: list[Tree] = []

    def begin(self, run: Run) -> None:
        """Forgets the run before."""
        self._loops.clear()

    def after_run(self, run: Run, results: Tree) -> None:
        """Keeps what this loop sent."""
        self._loops.append(results)

    @property
    def results(self) -> Tree:
        """All of it, `[results, (replicas,) ...]`."""
        return jax.tree.map(lambda *loops: np.concatenate(loops), *self._loops)
