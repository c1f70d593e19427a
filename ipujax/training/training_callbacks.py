"""Callbacks on the host beside a run, and the state of the run that they see."""

from __future__ import annotations

import jax
import numpy as np

from ipujax.training.training_checks import check
from ipujax.training.training_state import TrainState, Tree


@check.guard
class Run:
    """A `fit`, `evaluate` or `predict` in progress, which callbacks see and may stop.

    Attributes:
      state: the state after the last device loop.
      steps: the number of steps to make in all; None until the data ends.
      done: the number of steps that have been made.
      results_per_step: the number of results that a step sends.
      replicas: copies of the graph in this process; with several, results have an axis of them.
      exhausted: whether the data has ended.
      stopped: whether a callback has asked for the end.
    """

    def __init__(self, state: TrainState, steps: int | None, results_per_step: int):
        self.state, self.steps, self.results_per_step = state, steps, results_per_step
        self.done, self.replicas = 0, 1
        self.exhausted = self.stopped = False

    def request_stop(self) -> None:
        """Ends the run after the current device loop."""
        self.stopped = True

    @property
    def is_over(self) -> bool:
        """True if no device loop comes after the current one."""
        return self.stopped or self.exhausted or self.done == self.steps


@check.guard
class Callback:
    """The base of callbacks, which a run notifies; subclasses override what they need."""

    def begin(self, run: Run) -> None:
        """Is called when the program is traced, before anything runs."""

    def before_run(self, run: Run) -> None:
        """Is called before a device loop runs."""

    def result(self, run: Run, result: Tree) -> None:
        """Is called with one result, `[(replicas,) ...]`, during the loop, in another thread."""

    def after_run(self, run: Run, results: Tree) -> None:
        """Is called when a device loop has ended.

        Args:
          run: the run, with its new `state`.
          results: the results of the loop, NumPy arrays `[results, (replicas,) ...]`; without the
            first axis if the outfeed keeps the last ones only.
        """

    def end(self, run: Run) -> None:
        """Is called when the run has ended without an error."""

    @property
    def is_live(self) -> bool:
        """True if the callback gets every result as soon as it is sent."""
        return type(self).result is not Callback.result


@check.guard
class History(Callback):
    """A callback that keeps all results of a run, for an outfeed that keeps all."""

    def __init__(self) -> None:
        self._loops: list[Tree] = []

    def begin(self, run: Run) -> None:
        """Forgets the results of the last run."""
        self._loops.clear()

    def after_run(self, run: Run, results: Tree) -> None:
        """Keeps the results of a device loop."""
        self._loops.append(results)

    @property
    def results(self) -> Tree:
        """All results of the run, `[results, (replicas,) ...]`."""
        return jax.tree.map(lambda *loops: np.concatenate(loops), *self._loops)
