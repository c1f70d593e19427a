"""Estimators that several workers train, against one process with the same batches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from ipujax.doors.estimators.workers import InputContext
from ipujax.errors import EstimatorError
from ipujax.horovod import ipu_horovod_strategy
from ipujax.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from tests.ipujax.distribution.processes import PROGRAMS, told_by
from tests.ipujax.estimating import config

MANY = [
    (2, 2),
    pytest.param(2, 4, marks=pytest.mark.exhaustive),
    pytest.param(4, 4, marks=pytest.mark.complete),
]
STEPS = ["ckpt-4", "ckpt-6", "ckpt-10.1", "ckpt-12", "ckpt-14"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What so many workers with so many replicas in all tell; they run once."""
    folders: dict[Any, Path] = {}

    def find(workers: int, replicas: int) -> list[dict[str, Any]]:
        key = workers, replicas
        folder = folders.setdefault(key, tmp_path_factory.mktemp("workers", numbered=True))
        return told_by("estimators.py", *key, str(folder))

    return find


def close(some: Any, others: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-5), some, others)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workers", "replicas"), MANY)
def test_training_is_that_of_one_process(workers: int, replicas: int, told: Any) -> None:
    (alone,), several = told(1, replicas // workers), told(workers, replicas)
    for kind in ("function", "pipeline"):
        close(several[0][kind], alone[kind])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workers", "replicas"), MANY)
def test_all_workers_use_what_the_chief_has(workers: int, replicas: int, told: Any) -> None:
    (alone,), several = told(1, replicas // workers), told(workers, replicas)
    for rank, each in enumerate(several):
        assert each["in config"] == [rank == 0, workers]
        assert each["evaluated"]["global_step"] == 12
        close(each["evaluated"]["error"], alone["evaluated"]["error"])
        close(each["evaluated"]["loss"] * workers, alone["evaluated"]["loss"])
        close(each["predicted"], alone["predicted"])


def test_the_chief_alone_writes(told: Any) -> None:
    chief, other = told(2, 2)
    names = [name.removesuffix(".npz") for name in chief["function files"]]
    assert sorted(names) == sorted(STEPS)  # the last where one worker asked for the end
    assert [name.removesuffix(".npz") for name in chief["pipeline files"]] == ["ckpt-16", "ckpt-8"]
    assert other["function files"] == other["pipeline files"] == []


@pytest.mark.fact("distributed.mw_sync_on_read")
def test_state_is_averaged_where_it_is_read(told: Any) -> None:
    chief, other = told(2, 2)
    assert chief["state"] == 2.5
    assert chief["own states"] == [2.0, 3.5, 4.5]
    assert other["own states"] == [3.0, 4.5, 6.5]


def test_variables_of_pipelines_are_not_on_the_host() -> None:
    strategy = ipu_horovod_strategy.IPUHorovodStrategy(variables_on_host=True)
    with pytest.raises(EstimatorError, match="variables_on_host, which pipelines do not support"):
        IPUPipelineEstimator(
            lambda mode: IPUPipelineEstimatorSpec(mode, [len, len], 1),
            config=config(train_distribute=strategy),
        )


def test_a_global_batch_is_divided() -> None:
    context = InputContext(2, 1, 2)
    assert context.get_per_replica_batch_size(8) == 4
    with pytest.raises(EstimatorError, match="7 cannot be divided by 2 workers"):
        context.get_per_replica_batch_size(7)


@pytest.mark.exhaustive
def test_a_training_goes_on_where_a_worker_was_killed(tmp_path: Path) -> None:
    (chief, _) = told_by("killed_estimator.py", 2, 2, str(tmp_path / "undisturbed"), "0")
    folder = str(tmp_path / "killed")
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2"]
    program = [sys.executable, str(PROGRAMS / "killed_estimator.py"), folder, "8"]
    done = subprocess.run(
        [*launch, *program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 137
    again = told_by("killed_estimator.py", 2, 2, folder, "0")
    assert [each["global_step"] for each in again] == [12, 12]
    for each in again:
        close(each["w"], chief["w"])
        close(each["state"], chief["state"])
