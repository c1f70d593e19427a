"""Listeners that are called before and after an estimator saves checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.session_hooks import Session

_METHODS = ("begin", "before_save", "after_save", "end")


class CheckpointSaverListener:
    """The base of listeners, which an estimator calls around its checkpoints.

    Listeners are given as `estimator.train(saving_listeners=[...])`. Any object that has the four
    methods will do.
    """

    def begin(self) -> None:
        """Is called once, before the first device loop."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """Is called before a checkpoint is written."""

    def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """Is called when a checkpoint was written; True ends the training."""

    def end(self, session: Session, global_step_value: int) -> None:
        """Is called once, after the last checkpoint, if no error has ended the training."""


def check_listeners(listeners: object) -> Sequence[CheckpointSaverListener]:
    """Returns the listeners that `train` was given, a tuple; None stands for none.

    Raises:
      EstimatorTypeError: (a `TypeError`) an entry without one of the methods.
    """
    argument_name = "saving_listeners"
    entries = (
        [] if listeners is None else check.require_sequence(listeners, argument_name, "listeners")
    )
    for entry in entries:
        if isinstance(entry, type) or not all(
            callable(getattr(entry, method, None)) for method in _METHODS
        ):
            expected = "a CheckpointSaverListener: an object with the methods " + ", ".join(
                _METHODS
            )
            fix = "derive its class from ipu_session_run_hooks.CheckpointSaverListener"
            raise check.wrong_type_error(expected, entry, f"an entry of {argument_name}", fix)
    return tuple(entries)


def check_saving_is_set(listeners: Sequence[Any], config: Any) -> None:
    """Refuses listeners of a training that saves nothing.

    Raises:
      EstimatorError: (a `ValueError`) neither steps nor seconds between checkpoints are set.
    """
    if listeners and not config.save_checkpoints_steps and not config.save_checkpoints_secs:
        raise check.value_error(
            "saving_listeners are given, and the RunConfig saves no checkpoints",
            "set save_checkpoints_steps or save_checkpoints_secs in the RunConfig",
        )


def save_and_notify_listeners(
    listeners: Sequence[CheckpointSaverListener], session: Session, save: Callable[[], None]
) -> bool:
    """Saves and calls the listeners around it; returns whether one asks for the end."""
    step = session.global_step
    for listener in listeners:
        listener.before_save(session, step)
    save()
    answers = [listener.after_save(session, step) for listener in listeners]
    return any(answers)
