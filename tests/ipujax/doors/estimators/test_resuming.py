"""A training whose process dies goes on with the next element; one that ended does not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from tests.harness import ROOT
from tests.ipujax.estimating import config, of, scalars

ELEMENTS = 40


def summing(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
    """After training, `w` is minus the sum of the elements that it saw."""
    loss = variables["w"] * jnp.sum(features)
    return IPUEstimatorSpec(mode, loss=loss, train_op=optax.sgd(1.0))


def summing_estimator(folder: Path) -> IPUEstimator:
    return IPUEstimator(
        summing,
        config=config(folder, iterations=2, save_checkpoints_steps=4),
        init_fn=lambda key, features: {"w": jnp.float32(0)},
    )


class Stateful:
    """An iterator that says where it is, as grain's do."""

    def __init__(self) -> None:
        self.next, self.read = 0, 0

    def __iter__(self) -> Stateful:
        return self

    def __next__(self) -> Any:
        if self.next == ELEMENTS:
            raise StopIteration
        self.next, self.read = self.next + 1, self.read + 1
        return np.float32([self.next - 1])

    def get_state(self) -> dict[str, int]:
        return {"next": self.next}

    def set_state(self, state: dict[str, int]) -> None:
        self.next = state["next"]


DYING = """
import os, signal, sys
from pathlib import Path
from tests.ipujax.doors.estimators.test_resuming import ELEMENTS, Stateful
from tests.ipujax.doors.estimators.test_resuming import scalars, summing_estimator
from ipujax.ipu_session_run_hooks import SessionRunHook

class Dies(SessionRunHook):
    def after_run(self, run_context, run_values):
        if run_context.session.global_step == 10:
            os.kill(os.getpid(), signal.SIGKILL)

data = Stateful() if sys.argv[2] == "stateful" else scalars(*range(ELEMENTS))
summing_estimator(Path(sys.argv[1])).train(lambda: data, hooks=[Dies()], steps=20)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["stateful", "list"])
def test_a_training_that_died_goes_on_with_the_next_element(tmp_path: Path, kind: str) -> None:
    died = subprocess.run([sys.executable, "-c", DYING, tmp_path, kind], cwd=ROOT, check=False)
    assert died.returncode == -signal.SIGKILL
    estimator = summing_estimator(tmp_path)
    assert estimator.get_variable_value("global_step") == 8
    stateful = Stateful()
    data = stateful if kind == "stateful" else scalars(*range(ELEMENTS))
    estimator.train(of(data), max_steps=20)
    assert estimator.get_variable_value("w") == -sum(range(20))
    # The next one ended the training: what comes now begins anew.
    estimator.train(of(scalars(*range(ELEMENTS))), steps=2)
    assert estimator.get_variable_value("w") == -sum(range(20)) - 1


def test_an_exception_ends_a_training(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from scalars(*range(10))
        raise RuntimeError("gone")

    estimator = summing_estimator(tmp_path)
    with pytest.raises(RuntimeError, match="gone"):
        estimator.train(broken, steps=20)
    assert estimator.get_variable_value("global_step") == 8
    estimator.train(of(scalars(*range(ELEMENTS))), steps=2)
    assert estimator.get_variable_value("w") == -sum(range(8)) - 1
