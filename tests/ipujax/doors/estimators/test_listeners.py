"""Listeners of checkpoints are called as tf.estimator called them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipujax.errors import EstimatorError, EstimatorTypeError
from ipujax.ipu_estimator import IPUEstimator
from ipujax.ipu_session_run_hooks import CheckpointSaverListener, Session
from tests.ipujax.estimating import config, linear, linear_init, regression


class Told(CheckpointSaverListener):
    """Notes what it is told, with the newest checkpoint."""

    def __init__(self, stop_at: int | None = None):
        self.calls: list[Any] = []
        self.estimator: Any = None
        self._stop_at = stop_at

    def begin(self) -> None:
        """Notes it."""
        self.calls.append("begin")

    def before_save(self, session: Session, global_step_value: int) -> None:
        """Notes it."""
        self._note("before", session, global_step_value)

    def after_save(self, session: Session, global_step_value: int) -> bool:
        """Notes it, and may ask for the end."""
        self._note("after", session, global_step_value)
        return global_step_value == self._stop_at

    def end(self, session: Session, global_step_value: int) -> None:
        """Notes it."""
        self._note("end", session, global_step_value)

    def _note(self, name: str, session: Session, step: int) -> None:
        assert session.global_step == step
        newest = self.estimator.latest_checkpoint()
        self.calls.append((name, step, newest and int(float(newest.rpartition("ckpt-")[2]))))


def train(folder: Path, *listeners: Any, steps: int = 5, **options: Any) -> Any:
    """Trains, and saves every second step."""
    run = config(folder, **(options or {"save_checkpoints_steps": 2}))
    estimator = IPUEstimator(linear, config=run, params={}, init_fn=linear_init)
    for listener in listeners:
        listener.estimator = estimator
    return estimator.train(lambda: iter(regression()), steps=steps, saving_listeners=listeners)


def test_listeners_are_told_before_and_after_each_checkpoint(tmp_path: Path) -> None:
    told, other = Told(), Told()
    train(tmp_path, told, other)
    assert told.calls == [
        "begin",
        ("before", 2, None),
        ("after", 2, 2),
        ("before", 4, 2),
        ("after", 4, 4),
        ("before", 5, 4),
        ("after", 5, 5),
        ("end", 5, 5),
    ]
    assert other.calls == told.calls


def test_the_last_checkpoint_is_told_once(tmp_path: Path) -> None:
    told = Told()
    train(tmp_path, told, steps=4)
    steps = [call[:2] for call in told.calls[1:]]
    assert steps == [("before", 2), ("after", 2), ("before", 4), ("after", 4), ("end", 4)]


def test_a_listener_may_end_the_training(tmp_path: Path) -> None:
    told = Told(stop_at=2)
    estimator = train(tmp_path, told)
    assert [call[:2] for call in told.calls[1:]] == [("before", 2), ("after", 2), ("end", 2)]
    assert estimator.get_variable_value("global_step") == 2


def test_listeners_that_cannot_be_told_are_refused(tmp_path: Path) -> None:
    for options in ({"save_checkpoints_steps": None}, {"save_checkpoints_secs": None}):
        with pytest.raises(EstimatorError, match="saves no checkpoints"):
            train(tmp_path, Told(), **options)
    for wrong in (Told, type("Half", (), {"before_save": print})(), "text"):
        estimator = IPUEstimator(linear, config=config(), params={}, init_fn=linear_init)
        with pytest.raises(EstimatorTypeError, match="an entry of saving_listeners is"):
            estimator.train(lambda: iter(regression()), steps=1, saving_listeners=[wrong])
