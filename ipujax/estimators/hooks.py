"""Session run hooks: told on the host of each device loop of an estimator (seed 001, 18.12.4)."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

from ipujax.estimators.checks import check
from ipujax.estimators.event_files import EventFile
from ipujax.training.callbacks import Callback, Run
from ipujax.training.state import TrainState, Tree


@check.guard
class Session:
    """What hooks see of an estimator that runs; there is no graph of the original's kind.

    Attributes:
      state: after the last device loop.
    """

    def __init__(self, run: Run, events: EventFile):
        self._run, self._events = run, events

    @property
    def state(self) -> TrainState:
        """Variables, optimizer state, untrained state and step after the last device loop."""
        return self._run.state

    @property
    def global_step(self) -> int:
        """After the last device loop."""
        return self._run.state.step

    def write_summary(self, summary: bytes) -> None:
        """Writes what `summary_ops.tensor_summary` made, for TensorBoard, with the global step.

        Without the extra `tensorboard` nothing is written.
        """
        check.instance(summary, bytes, "the summary", "the bytes of a Summary message")
        self._events.summary(summary, self.global_step)

    def run(self, fetches: Any, feed_dict: Any = None) -> None:
        """Refused: nothing can be fetched from a program that has no graph.

        Raises:
          EstimatorError: (a `ValueError`) always.
        """
        del fetches, feed_dict
        raise check.refuse(
            "a hook called session.run, but an estimator's programs have no graph to run parts of",
            "take session.state, session.global_step, or what run_values.results has",
        )


@check.guard
class SessionRunContext:
    """What `before_run` and `after_run` are given first.

    Attributes:
      session: a `Session`.
    """

    def __init__(self, run: Run, session: Session):
        self._run, self.session = run, session

    @property
    def stop_requested(self) -> bool:
        """Whether this or another hook has asked for the end."""
        return self._run.stopped

    def request_stop(self) -> None:
        """Ends the training, evaluation or prediction after this device loop."""
        self._run.request_stop()


@check.guard
@dc.dataclass(frozen=True)
class SessionRunValues:
    """What a device loop gave.

    Attributes:
      results: NumPy arrays that the loop sent, `[steps, (replicas,) ...]`: while training a dict
        with "loss", while evaluating also "totals" or "tensors", the predictions else.
    """

    results: Tree


@check.guard
class SessionRunHook:
    """Told what an estimator does; override what is of interest. A session run is a device loop."""

    def begin(self) -> None:
        """The model was traced, and nothing has been run."""

    def after_create_session(self, session: Session, coord: None) -> None:
        """Comes after `begin`; there is no coordinator."""

    def before_run(self, run_context: SessionRunContext) -> None:
        """A device loop is about to run; must return None, as there is nothing to fetch."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """A device loop has ended."""

    def end(self, session: Session) -> None:
        """All is done, without an error."""


class HookCallback(Callback):
    """Tells hooks what a run does.

    Args:
      hooks: gives them, in order, once the model was traced.
      events: where they may write.

    Attributes:
      replicas: of the program that runs.
    """

    def __init__(self, hooks: Callable[[], Sequence[SessionRunHook]], events: EventFile):
        self._find, self._events = hooks, events
        self._hooks: Sequence[SessionRunHook] = ()
        self.replicas = 1

    def begin(self, run: Run) -> None:
        """As `SessionRunHook.begin`, and the session."""
        self._hooks, self.replicas = self._find(), run.replicas
        for hook in self._hooks:
            hook.begin()
        for hook in self._hooks:
            hook.after_create_session(self._session(run), None)

    def before_run(self, run: Run) -> None:
        """As `SessionRunHook.before_run`."""
        for hook in self._hooks:
            asked: object = hook.before_run(self._context(run))
            if asked is not None:
                raise check.refuse(
                    f"{type(hook).__name__}.before_run asks for {asked!r}, but there is no graph "
                    "to fetch from",
                    "return None; run_values.results of after_run has what the loop sent",
                )

    def after_run(self, run: Run, results: Tree) -> None:
        """As `SessionRunHook.after_run`."""
        for hook in self._hooks:
            hook.after_run(self._context(run), SessionRunValues(results))

    def end(self, run: Run) -> None:
        """As `SessionRunHook.end`."""
        for hook in self._hooks:
            hook.end(self._session(run))

    def _session(self, run: Run) -> Session:
        return Session(run, self._events)

    def _context(self, run: Run) -> SessionRunContext:
        return SessionRunContext(run, self._session(run))
