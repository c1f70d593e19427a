"""The programs of the original's tutorials, ported: they run and give what the tutorials say."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import RunWithDevices
from tests.seed_programs import (
    basic_graph,
    compiled_graph,
    live_outfeed,
    replication,
    sharded_graph,
    training_loop,
)

HERE = Path(__file__).parent
PROGRAMS = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))


def attached(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "attached" in r.getMessage()]


@pytest.fixture(autouse=True)
def all_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ipujax")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_each_runs_as_a_script(program: Path, run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(1, program)


def test_basic_graph(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    np.testing.assert_array_equal(basic_graph.main(), [3.0, 8.0])
    assert capsys.readouterr().out == "[3. 8.]\n"
    assert attached(caplog) == ["Device /device:IPU:0 attached to IPU: 0"]


def test_basic_graph_compiled_by_the_seeds_form() -> None:
    result = compiled_graph.main()
    assert isinstance(result, tuple)
    assert len(result) == 1
    np.testing.assert_array_equal(result[0], [3.0, 8.0])


def test_sharded_graph(caplog: pytest.LogCaptureFixture) -> None:
    (result,) = sharded_graph.main()
    np.testing.assert_array_equal(result, [4.0, 14.0])
    assert attached(caplog) == ["Device /device:IPU:0 attached to IPUs: 24"]


@pytest.mark.exhaustive
def test_sharded_graph_on_four_devices(run_with_devices: RunWithDevices) -> None:
    printed = run_with_devices(4, HERE / "sharded_graph.py")
    assert "[ 4., 14.]" in printed


def test_training_loop() -> None:
    counter, result = training_loop.main()
    assert int(counter) == 10
    assert list(result) == ["d1", "d2"]
    np.testing.assert_array_equal(result["d1"], np.full((10, 800), 2.0, np.float32))
    np.testing.assert_array_equal(result["d2"], np.zeros((10, 800), np.float32))


@pytest.mark.exhaustive
def test_live_outfeed_prints_while_the_loop_runs(capsys: pytest.CaptureFixture[str]) -> None:
    progress = live_outfeed.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == [str(i) for i in range(100)]
    assert len(progress.losses) == 100
    assert np.mean(progress.losses[-10:]) < np.mean(progress.losses[:10])
    assert progress.printed == sorted(progress.printed)
    early = sum(moment < progress.ended for moment in progress.printed)
    assert early >= 10, f"{early} losses were printed before the loop ended"


def test_live_outfeed_is_read_before_the_data_set_goes_on() -> None:
    """The data set waits for the printed losses: were they held back, it would wait in vain."""
    progress = live_outfeed.Progress()

    def dataset() -> Iterator[live_outfeed.Batch]:
        for number, batch in enumerate(live_outfeed.create_dataset()):
            patience = time.monotonic() + 60
            while number >= 40 and len(progress.losses) < number // 8:
                if time.monotonic() > patience:
                    raise TimeoutError(f"{len(progress.losses)} losses came before step {number}")
                time.sleep(0.001)
            yield batch

    live_outfeed.main(dataset, progress)
    assert len(progress.losses) == 100


def plainly_trained(replicas: int) -> tuple[dict[str, jax.Array], np.ndarray]:
    """The same training without IPUs: the mean over the replicas' elements is one big batch's."""
    weights, losses = replication.initial_weights(), []
    data = replication.elements(replication.STEPS * replicas)
    for step in range(replication.STEPS):
        own = data[step * replicas : (step + 1) * replicas]
        grads = [jax.value_and_grad(replication.loss_of)(weights, x, y) for x, y in own]
        losses.append([loss for loss, _ in grads])
        mean = jax.tree.map(lambda *g: sum(g) / replicas, *(g for _, g in grads))
        weights = jax.tree.map(lambda w, g: w - replication.LEARNING_RATE * g, weights, mean)
    return weights, np.array(losses, np.float32)


@pytest.mark.exhaustive
@pytest.mark.fact("devices.shards_power2")
@pytest.mark.parametrize(("ipus", "replicas"), [(2, 1), (4, 2), (8, 4), (16, 8)])
def test_replication_by_the_ipu_count(ipus: int, replicas: int) -> None:
    weights, losses = replication.main(ipus)
    wanted, wanted_losses = plainly_trained(replicas)
    assert losses.shape == ((3,) if replicas == 1 else (3, replicas))
    np.testing.assert_allclose(losses, wanted_losses.reshape(losses.shape), rtol=1e-5)
    for name in wanted:
        np.testing.assert_allclose(weights[name], wanted[name], rtol=1e-5, atol=1e-7)
    assert not jnp.allclose(weights["w1"], replication.initial_weights()["w1"])
