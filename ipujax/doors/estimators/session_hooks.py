"""Session run hooks, called on the host around each device loop of an estimator."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence

from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.event_files import EventFile
from ipujax.training import Callback, Run, TrainState, Tree


@check.guard
class Session:
    """The view that hooks have of a running estimator; it has no graph as the original has.

    Attributes:
      state: the state after the last device loop.
    """

    def __init__(self, run: Run, events: EventFile):
        self._run, self._events = run, events

    @property
    def state(self) -> TrainState:
        """Variables, optimizer state, untrained state and step after the last device loop."""
        return self._run.state

    @property
    def global_step(self) -> int:
        """The global step after the last device loop."""
        return self._run.state.step

    def write_summary(self, summary: bytes) -> None:
        """Writes a summary of `summary_ops.tensor_summary` at the global step, for TensorBoard.

        Without the extra `tensorboard` nothing is written.
        """
        check.require_instance(summary, bytes, "the summary", "the bytes of a Summary message")
        self._events.write_summary_message(summary, self.global_step)

    def run(self, fetches: object, feed_dict: object = None) -> None:
        """Raises an error: nothing can be fetched from a program that has no graph.

        Raises:
          EstimatorError: (a `ValueError`) always.
        """
        del fetches, feed_dict
        raise check.value_error(
            "a hook called session.run, but an estimator's programs have no graph to run parts of",
            "take session.state, session.global_step, or what run_values.results has",
        )


@check.guard
class SessionRunContext:
    """The context that `before_run` and `after_run` get.

    Attributes:
      session: a `Session`.
    """

    def __init__(self, run: Run, session: Session):
        self._run, self.session = run, session

    @property
    def stop_requested(self) -> bool:
        """True if a hook has asked for the end."""
        return self._run.stopped

    def request_stop(self) -> None:
        """Ends the training, evaluation or prediction after this device loop."""
        self._run.request_stop()


@check.guard
@dc.dataclass(frozen=True)
class SessionRunValues:
    """The results of a device loop, for hooks.

    Attributes:
      results: NumPy arrays that the loop sent, `[steps, (replicas,) ...]`: while training a dict
        with "loss", while evaluating also "totals" or "tensors", the predictions else.
    """

    results: Tree


@check.guard
class SessionRunHook:
    """The base of hooks, called around the device loops, the session runs, of an estimator."""

    def begin(self) -> None:
        """Is called when the model was traced, before anything runs."""

    def after_create_session(self, session: Session, coord: None) -> None:
        """Is called after `begin`; there is no coordinator."""

    def before_run(self, run_context: SessionRunContext) -> None:
        """Is called before a device loop; must return None, as nothing can be fetched."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Is called when a device loop has ended."""

    def end(self, session: Session) -> None:
        """Is called when all is done, without an error."""


class HookCallback(Callback):
    """A callback of a run that calls the session run hooks of an estimator.

    Args:
      hooks: returns the hooks, in order, once the model was traced.
      events: the event file that hooks may write.

    Attributes:
      replicas: the number of replicas of the program.
    """

    def __init__(self, hooks: Callable[[], Sequence[SessionRunHook]], events: EventFile):
        self._find, self._events = hooks, events
        self._hooks: Sequence[SessionRunHook] = ()
        self.replicas = 1

    def begin(self, run: Run) -> None:
        """Calls `begin` and `after_create_session` of all hooks."""
        self._hooks, self.replicas = self._find(), run.replicas
        for hook in self._hooks:
            hook.begin()
        for hook in self._hooks:
            hook.after_create_session(self._make_session(run), None)

    def before_run(self, run: Run) -> None:
        """Calls `before_run` of all hooks."""
        for hook in self._hooks:
            fetches: object = hook.before_run(self._make_context(run))
            if fetches is not None:
                raise check.value_error(
                    f"{type(hook).__name__}.before_run asks for {fetches!r}, but there is no graph "
                    "to fetch from",
                    "return None; run_values.results of after_run has what the loop sent",
                )

    def after_run(self, run: Run, results: Tree) -> None:
        """Calls `after_run` of all hooks."""
        for hook in self._hooks:
            hook.after_run(self._make_context(run), SessionRunValues(results))

    def end(self, run: Run) -> None:
        """Calls `end` of all hooks."""
        for hook in self._hooks:
            hook.end(self._make_session(run))

    def _make_session(self, run: Run) -> Session:
        return Session(run, self._events)

    def _make_context(self, run: Run) -> SessionRunContext:
        return SessionRunContext(run, self._make_session(run))
