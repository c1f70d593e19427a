"""PopTorch's wrappers in several processes train as one process with all of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipujax.distribution.processes import told_by

pytest.importorskip("torch", reason="the extra `torch` is not installed")

import torch

from ipujax import poptorch
from ipujax.popdist.poptorch import Options
from ipujax.poptorch.batch_split import BatchSplit

ITERATIONS, ACCUMULATION, BATCH = 2, 2, 2


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("replicas", [4, 2], ids=str)
def test_modules_train_on_what_all_processes_read(replicas: int) -> None:
    told = told_by("torch_training.py", 2, replicas)
    for kind in ("sync", "ahead"):
        pair = [each[kind] for each in told]
        assert pair[0]["before"] != pair[1]["before"]
        check_data(pair)
        weights, momenta = trained_alone(pair)
        for each in pair:
            np.testing.assert_allclose(each["after"], weights, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(each["momenta"], momenta, rtol=1e-4, atol=1e-6)
            assert each["drawn"] == 2 * 64 // BATCH
    first, second = told
    # One has run a model, and the other has trained another, without its peer.
    assert (len(first["alone"]), len(second["alone"])) == (64, 4)
    assert first["statistics"] == second["statistics"]
    for rank, each in enumerate(told):
        assert each["gathered"] == {
            "mean": [1.5, 3.0] * 3,
            "sum": [3.0, 6.0, 2**41 + 1],
            "rows": [1.0, 2.0, 2.0, 4.0, 2.0, 4.0],
            "broadcast": [2.0, 4.0, 6.0, 6.0, rank, 2],
        }
    assert "process 0 of 3, but it is instance 0 of the 2 that run" in first["refused"][0]
    assert "Cannot call `Distributed.disable`" in first["refused"][1]


def check_data(pair: list[dict[str, Any]]) -> None:
    """Each epoch deals all rows, and each row once, in another order."""
    count = len(pair[0]["calls"]) // 2
    epochs = [
        [row for each in pair for rows, _ in each["calls"][half] for row in rows]
        for half in (slice(count), slice(count, None))
    ]
    assert [sorted(epoch) for epoch in epochs] == [list(range(64))] * 2
    assert epochs[0] != epochs[1]


def trained_alone(pair: list[dict[str, Any]]) -> tuple[Any, Any]:
    """What PyTorch makes of the first process's weights and the rows of both."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(64, width, generator=generator) for width in (3, 1))
    linear = torch.nn.Linear(3, 1)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([pair[0]["before"][:3]]))
        linear.bias.copy_(torch.tensor(pair[0]["before"][3:]))
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.5)
    for calls in zip(*(each["calls"] for each in pair), strict=True):
        parts = [(np.split(np.array(rows), ITERATIONS), losses) for rows, losses in calls]
        for step in range(ITERATIONS):
            rows = np.concatenate([split[step] for split, _ in parts])
            errors = (linear(x[rows]) - y[rows]) ** 2
            said = np.concatenate(
                [np.split(np.array(losses), ITERATIONS)[step] for _, losses in parts]
            )
            own = errors.detach().reshape(-1, BATCH).mean(1)
            np.testing.assert_allclose(said, own, rtol=1e-4, atol=1e-6)
            optimizer.zero_grad()
            errors.mean().backward()
            optimizer.step()
    flat = torch.cat([p.detach().flatten() for p in linear.parameters()])
    momenta = [optimizer.state[p]["momentum_buffer"].flatten() for p in linear.parameters()]
    return flat.numpy(), torch.cat(momenta).numpy()


def test_random_numbers_are_those_of_one_process() -> None:
    alone = BatchSplit(iterations=2, accumulation=3, replicas=4)
    pair = [BatchSplit(2, 3, 2, process=process, processes=2) for process in range(2)]
    rows = [shares.indices_among_all_processes.reshape(-1, 2) for shares in pair]
    np.testing.assert_array_equal(
        np.concatenate(rows, axis=1).ravel(), alone.indices_among_all_processes
    )


def test_what_the_launcher_says_cannot_be_said_again() -> None:
    options = Options()
    for name in ("replicationFactor", "useIpuId"):
        with pytest.raises(RuntimeError, match=f"Cannot call `{name}` with popdist.poptorch"):
            getattr(options, name)(1)
    for name in ("disable", "setEnvVarNames", "configureProcessId"):
        with pytest.raises(RuntimeError, match=f"Cannot call `Distributed.{name}` with popdist"):
            getattr(options.Distributed, name)()
    copied = options.clone().outputMode(poptorch.OutputMode.All)
    assert copied.toDict()["num_distributed_processes"] == 1
