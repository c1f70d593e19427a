"""What is told of an estimator's checkpoints before and after they are saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipujax.estimators.checks import check
from ipujax.estimators.hooks import Session

_METHODS = ("begin", "before_save", "after_save", "end")


class CheckpointSaverListener:
    """An object that an estimator tells of its checkpoints; override what is of interest.

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


def checked_listeners(listeners: Any) -> Sequence[CheckpointSaverListener]:
    """Returns the listeners that `train` was given; None stands for none.

    Raises:
      EstimatorTypeError: (a `TypeError`) an entry without one of the methods.
    """
    what = "saving_listeners"
    entries = [] if listeners is None else check.sequence(listeners, what, "listeners")
    for entry in entries:
        if isinstance(entry, type) or not all(callable(getattr(entry, m, None)) for m in _METHODS):
            wanted = "a CheckpointSaverListener: an object with the methods " + ", ".join(_METHODS)
            fix = "derive its class from ipu_session_run_hooks.CheckpointSaverListener"
            raise check.other_than(wanted, entry, f"an entry of {what}", fix)
    return tuple(entries)


def check_saves(listeners: Sequence[Any], config: Any) -> None:
    """Refuses listeners of a training that saves nothing.

    Raises:
      EstimatorError: (a `ValueError`) neither steps nor seconds between checkpoints are set.
    """
    if listeners and not config.save_checkpoints_steps and not config.save_checkpoints_secs:
        raise check.refuse(
            "saving_listeners are given, and the RunConfig saves no checkpoints",
            "set save_checkpoints_steps or save_checkpoints_secs in the RunConfig",
        )


def tell_around_saving(
    listeners: Sequence[CheckpointSaverListener], session: Session, save: Callable[[], None]
) -> bool:
    """Saves, and tells listeners before and after; returns whether one asks for the end."""
    step = session.global_step
    for listener in listeners:
        listener.before_save(session, step)
    save()
    answers = [listener.after_save(session, step) for listener in listeners]
    return any(answers)
