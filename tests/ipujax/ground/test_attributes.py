"""Settings that refuse, when they are set, what cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import popart, poptorch
from ipujax.errors import PipelineTypeError, PopARTError, PopARTTypeError, PopTorchError

WRONG: dict[str, tuple[Any, ...]] = {
    "enablePipelining": ("yes", None, 2, 1.0, np.ones(2)),
    "accumulationFactor": (-1, 1.5, "2", None, popart.ReductionType.Mean),
    "outlineThreshold": ("1", None, float("nan")),
    "virtualGraphMode": (1, "Manual", popart.ReductionType.Sum),
    "engineOptions": ([], "a", None),
    "hardwareInstrumentations": ("Outer", 3),
    "kahnTieBreaker": (3, None),
    "accumulateOuterFragmentSettings": (popart.TensorLocationSettings(), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_session_options_refuse_what_they_are_not(name: str) -> None:
    options = popart.SessionOptions()
    before = getattr(options, name)
    for value in WRONG[name]:
        with pytest.raises(PopARTError, match=rf"SessionOptions\.{name} is"):
            setattr(options, name, value)
    assert getattr(options, name) == before


def test_session_options_take_what_the_original_took() -> None:
    options = popart.SessionOptions()
    options.enablePipelining = 1
    assert options.enablePipelining is True
    options.accumulationFactor = np.int64(4)
    options.outlineThreshold = -1
    options.engineOptions = {"opt.useAutoloader": "true"}
    options.hardwareInstrumentations = {popart.Instrumentation.Inner}
    assert (options.accumulationFactor, options.outlineThreshold) == (4, -1)


def test_settings_inside_refuse_too() -> None:
    settings = popart.AutomaticLossScalingSettings()
    for name, value in (("enabled", "no"), ("updatePeriod", -1), ("binEdgeLocation", "a")):
        with pytest.raises(PopARTError, match=f"AutomaticLossScalingSettings.{name} is"):
            setattr(settings, name, value)
    settings.toTrackTensors = ["a"]
    with pytest.raises(PopARTTypeError, match="storage is 'OnChip'"):
        popart.TensorLocation("OnChip")  # pyright: ignore[reportArgumentType]
    with pytest.raises(PopARTTypeError, match="type is 'All'"):
        popart.CommGroup("All")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), "0.1", None])
def test_values_of_optimizers_are_finite_numbers(rate: Any) -> None:
    for kind in (popart.SGD, popart.Adam, popart.Adaptive):
        with pytest.raises(PopARTError, match="defaultLearningRate"):
            kind({"defaultLearningRate": (rate, False)})


@pytest.mark.parametrize("count", [1.5, "two", None, -1, [1]])
def test_devices_have_whole_numbers_of_ipus(count: Any) -> None:
    manager = popart.DeviceManager()
    with pytest.raises(PopARTError, match="numIPUs"):
        manager.createIpuModelDevice({"numIPUs": count})
    assert manager.createIpuModelDevice({"numIPUs": "2"}).numIpus == 2


def test_a_data_flow_takes_return_types_only() -> None:
    for kind in (0, "", "All", []):
        with pytest.raises(PopARTTypeError, match="anchorReturnType"):
            popart.DataFlow(1, ["y"], kind)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", [-1, 0, "FloatDowncastToHalf", None])
def test_half_float_casting_takes_its_enumeration(value: Any) -> None:
    options = poptorch.Options()
    with pytest.raises(PopTorchError, match="halfFloatCasting"):
        options.Precision.halfFloatCasting(value)
    options.Precision.halfFloatCasting(poptorch.HalfFloatCastingBehavior.FloatDowncastToHalf)


@pytest.mark.parametrize("loss", ["text", None, object(), [1.0]])
def test_the_loss_of_an_optimizer_function_is_an_array(loss: Any) -> None:
    with pytest.raises(PipelineTypeError, match="the loss of an OptimizerFunctionOutput"):
        ipu.pipelining_ops.OptimizerFunctionOutput(optax.sgd(0.1), loss)
