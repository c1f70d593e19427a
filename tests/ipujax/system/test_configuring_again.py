"""Configuring again what is in force changes nothing, and compiles nothing anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.config import IPUConfig, configure_ipu_system
from ipujax.system import SYSTEM
from ipujax.training import Training
from tests.ipujax.feeding import configure, incr, infeed, outfeed
from tests.ipujax.training.regression import loss_of, trained


def configured(*, device_of: int = 1, **categories: dict[str, Any]) -> IPUConfig:
    config = IPUConfig()
    config.auto_select_ipus = device_of
    for name, options in categories.items():
        for option, value in options.items():
            setattr(getattr(config, name), option, value)
    return config


def test_devices_and_attachments_stay(caplog: pytest.LogCaptureFixture) -> None:
    configure(2, 1)
    generation, device = SYSTEM.generation, SYSTEM.device()
    caplog.clear()
    configure(2, 1)
    assert SYSTEM.generation == generation
    assert SYSTEM.device() is device
    assert not caplog.records


def test_what_was_detached_attaches_again(caplog: pytest.LogCaptureFixture) -> None:
    configure(2)
    generation = SYSTEM.generation
    SYSTEM.detach_all()
    caplog.clear()
    configure(2)
    assert SYSTEM.generation == generation
    assert [record.getMessage() for record in caplog.records] == [
        "Device /device:IPU:0 attached to IPUs: 16"
    ]


@pytest.mark.parametrize(
    "other",
    [
        configured(device_of=2),
        configured(norms={"use_stable_statistics": True}),
        configured(floating_point_behaviour={"inv": False}),
        configured(ipu_model={"version": "ipu2"}),
    ],
    ids=["IPUs", "numbers", "number formats", "chip"],
)
def test_what_differs_is_a_new_configuration(other: IPUConfig) -> None:
    configured().configure_ipu_system()
    generation = SYSTEM.generation
    other.configure_ipu_system()
    assert SYSTEM.generation != generation


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TF_POPLAR_FLAGS", "--null_data_feed"),
        ("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "false"}'),
    ],
)
def test_the_environment_is_looked_at(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(1)
    generation = SYSTEM.generation
    monkeypatch.setenv(name, value)
    configure(1)
    assert SYSTEM.generation != generation


def test_a_change_of_the_users_configuration_is_seen() -> None:
    config = configured()
    configure_ipu_system(config)
    generation = SYSTEM.generation
    config.optimizations.combine_matmuls = True
    configure_ipu_system(config)
    assert SYSTEM.generation != generation
    assert SYSTEM.device().config.optimizations.combine_matmuls


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_function_is_not_traced_again(engine: str) -> None:
    traced: list[Any] = []

    @ipu.compile(engine=engine)
    def double(x: jax.Array) -> jax.Array:
        traced.append(x)
        return 2 * x

    for _ in range(3):
        configure(1)
        assert double(np.float32(3)) == 6
    assert len(traced) == 1
    configure(2)
    double(np.float32(3))
    assert len(traced) == 2


def test_a_loop_with_queues_is_not_traced_again() -> None:
    traced: list[Any] = []
    source, results = infeed(incr(10)), outfeed()

    def body(total: jax.Array, x: jax.Array) -> jax.Array:
        traced.append(x)
        results.enqueue(total)
        return total + x

    run: Callable[[], Any] = ipu.compile(
        lambda: ipu.loops.repeat(3, body, [np.zeros((4, 4), np.float32)], source)
    )
    configure(1)
    np.testing.assert_array_equal(run(), np.full((4, 4), 0 + 1 + 2))
    count = len(traced)
    configure(1)
    np.testing.assert_array_equal(run(), np.full((4, 4), 3 + 4 + 5))
    assert len(traced) == count
    assert len(results.dequeue()) == 6


def test_a_training_is_not_traced_again() -> None:
    traced: list[Any] = []

    def loss(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        traced.append(weights)
        return loss_of(weights, x, y)

    training = Training(loss, optax.sgd(0.1))
    configure(1)
    once, _ = trained(training, 2)
    count = len(traced)
    configure(1)
    again, _ = trained(training, 2)
    assert len(traced) == count
    np.testing.assert_array_equal(again.variables, once.variables)
