"""Optimizers of PopART, against NumPy and PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import jax.numpy as jnp

from ipujax.errors import PopARTError
from ipujax.popart import DataType
from ipujax.popart.optimizers import (
    SGD,
    Adam,
    AdamMode,
    Adaptive,
    AdaptiveMode,
    ClipNormSettings,
    ConstSGD,
    Optimizer,
    SGDAccumulatorAndMomentum,
    WeightDecayMode,
)

STEPS = 4


def weights() -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(1)
    return {"a": generator.normal(size=(3, 2)), "b": generator.normal(size=(5,))}


def gradients(step: int) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(100 + step)
    return {"a": generator.normal(size=(3, 2)), "b": generator.normal(size=(5,))}


def after_steps(optimizer: Optimizer, scale: float = 1.0) -> dict[str, np.ndarray[Any, Any]]:
    transformation = optimizer.build_transformation()
    params = {n: jnp.asarray(v, jnp.float32) for n, v in weights().items()}
    state = transformation.init(params)
    for step in range(STEPS):
        given = {n: jnp.asarray(g * scale, jnp.float32) for n, g in gradients(step).items()}
        changes, state = transformation.update(given, state, params)
        params = {n: params[n] + changes[n] for n in params}  # pyright: ignore
    return {n: np.asarray(v) for n, v in params.items()}


def by_torch(make: Callable[..., Any]) -> dict[str, np.ndarray[Any, Any]]:
    torch = pytest.importorskip("torch", reason="PyTorch is the reference")
    params = {n: torch.tensor(v, requires_grad=True) for n, v in weights().items()}
    optimizer = make(torch.optim, list(params.values()))
    for step in range(STEPS):
        for name, gradient in gradients(step).items():
            params[name].grad = torch.tensor(gradient)
        optimizer.step()
    return {n: p.detach().numpy() for n, p in params.items()}


def agree(ours: Any, others: Any) -> None:
    for name in others:
        np.testing.assert_allclose(ours[name], others[name], rtol=2e-5, atol=2e-6, err_msg=name)


def values(scale: float = 1.0, **given: float) -> dict[str, tuple[float, bool]]:
    named = {
        f"default{name}": (value, number % 2 == 0)
        for number, (name, value) in enumerate(given.items())
    }
    return {**named, "lossScaling": (scale, False)}


TORCH = {
    "sgd": (
        lambda kind: SGD(values(8.0, LearningRate=0.1), accumulatorAndMomentum=kind),
        lambda optim, p: optim.SGD(p, lr=0.1),
    ),
    "momentum": (
        lambda kind: SGD(
            values(8.0, LearningRate=0.1, Momentum=0.9, WeightDecay=0.2, Dampening=0.3),
            accumulatorAndMomentum=kind,
        ),
        lambda optim, p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2, dampening=0.3),
    ),
    "nesterov": (
        lambda kind: SGD(
            {
                **values(8.0, LearningRate=0.1, Momentum=0.9, VelocityScaling=4.0),
                "nesterov": (1, True),
            },
            accumulatorAndMomentum=kind,
        ),
        lambda optim, p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    ),
}


@pytest.mark.parametrize("kind", SGDAccumulatorAndMomentum)
@pytest.mark.parametrize("name", TORCH)
def test_sgd_as_pytorch(name: str, kind: SGDAccumulatorAndMomentum) -> None:
    ours, theirs = TORCH[name]
    other = by_torch(theirs)
    if name == "momentum":
        # PyTorch does not dampen the first gradient.
        other = numpy_sgd(0.1, 0.9, 0.2, 0.3)
    agree(after_steps(ours(kind), 8.0), other)


def numpy_sgd(rate: float, momentum: float, decay: float, damp: float) -> dict[str, Any]:
    params = weights()
    velocity = {n: np.zeros_like(v) for n, v in params.items()}
    for step in range(STEPS):
        for name, gradient in gradients(step).items():
            total = gradient + decay * params[name]
            velocity[name] = momentum * velocity[name] + (1 - damp) * total
            params[name] = params[name] - rate * velocity[name]
    return params


def test_adam_as_pytorch() -> None:
    given = values(16.0, LearningRate=0.05, Beta1=0.8, Beta2=0.95, Eps=1e-4, WeightDecay=0.1)
    settings = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}
    agree(after_steps(Adam(given), 16.0), by_torch(lambda optim, p: optim.AdamW(p, **settings)))
    agree(
        after_steps(Adam(given, scaled_optimizer_state=True), 16.0),
        by_torch(lambda optim, p: optim.AdamW(p, **settings)),
    )
    regularized = Adam(given, weight_decay_mode=WeightDecayMode.L2Regularization)
    agree(after_steps(regularized, 16.0), by_torch(lambda optim, p: optim.Adam(p, **settings)))
    largest = Adam(values(LearningRate=0.05, Beta1=0.8, Beta2=0.95, Eps=1e-8), AdamMode.AdaMax)
    agree(
        after_steps(largest),
        by_torch(lambda optim, p: optim.Adamax(p, lr=0.05, betas=(0.8, 0.95), eps=1e-8)),
    )


@pytest.mark.parametrize("mode", [AdamMode.Adam, AdamMode.AdaMax, AdamMode.LambNoBias])
def test_moments_follow_a_loss_scaling_that_changes(mode: AdamMode) -> None:
    found: list[Any] = []
    for is_scaled in (True, False):
        optimizer = Adam(values(16.0, LearningRate=0.05), mode, scaled_optimizer_state=is_scaled)
        transformation = optimizer.build_transformation()
        params = {n: jnp.asarray(v, jnp.float32) for n, v in weights().items()}
        state: Any = transformation.init(params)
        for step, scale in enumerate([16.0, 16.0, 2.0, 64.0]):
            given = {n: jnp.asarray(g * scale, jnp.float32) for n, g in gradients(step).items()}
            hyper = {**state["hyper"], "lossScaling": jnp.float32(scale)}
            changes, state = transformation.update(given, {**state, "hyper": hyper}, params)
            params = {n: params[n] + changes[n] for n in params}  # pyright: ignore
        found.append({n: np.asarray(v) for n, v in params.items()})
    agree(*found)


def numpy_lamb(is_corrected: bool, limit: float) -> dict[str, Any]:
    params, first, second = weights(), {}, {}
    for step in range(STEPS):
        for name, g in gradients(step).items():
            first[name] = 0.8 * first.get(name, 0) + 0.2 * g
            second[name] = 0.95 * second.get(name, 0) + 0.05 * g**2
            by1, by2 = (1 - 0.8 ** (step + 1), 1 - 0.95 ** (step + 1)) if is_corrected else (1, 1)
            x = first[name] / by1 / (np.sqrt(second[name] / by2) + 1e-4) + 0.1 * params[name]
            norm = min(math.sqrt((params[name] ** 2).sum()), limit)
            params[name] = params[name] - 0.05 * norm / math.sqrt((x**2).sum()) * x
    return params


@pytest.mark.parametrize("is_corrected", [True, False])
def test_lamb(is_corrected: bool) -> None:
    given = values(
        LearningRate=0.05, Beta1=0.8, Beta2=0.95, Eps=1e-4, WeightDecay=0.1, MaxWeightNorm=1.5
    )
    mode = AdamMode.Lamb if is_corrected else AdamMode.LambNoBias
    agree(after_steps(Adam(given, mode)), numpy_lamb(is_corrected, 1.5))


def test_the_variant_of_tensorflow() -> None:
    given = values(LearningRate=0.1, Eps=1e-2, Alpha=0.9, Momentum=0.5, WeightDecay=0.1)
    params = weights()
    square = {n: np.ones_like(v) for n, v in params.items()}
    moved = {n: np.zeros_like(v) for n, v in params.items()}
    for step in range(STEPS):
        for name, g in gradients(step).items():
            square[name] = 0.9 * square[name] + 0.1 * g**2
            moved[name] = 0.5 * moved[name] + 0.1 * g / np.sqrt(square[name] + 1e-2)
            params[name] = params[name] - 0.1 * params[name] - moved[name]
    agree(after_steps(Adaptive(given, rmsprop_tf_variant=True)), params)


def test_norms_are_clipped_before_the_step() -> None:
    clipping = [ClipNormSettings.clipAllWeights(0.5)]
    other = weights()
    for step in range(STEPS):
        given = gradients(step)
        norm = math.sqrt(sum((g**2).sum() for g in given.values()))
        other = {n: other[n] - 0.1 * g * 0.5 / max(norm, 0.5) for n, g in given.items()}
    agree(after_steps(SGD({}, clipping)), other)
    with pytest.raises(PopARTError, match="not trained"):
        after_steps(SGD({}, [ClipNormSettings(["other"], 1.0)]))


def test_values_of_single_weights() -> None:
    optimizer = SGD({"defaultLearningRate": (0.1, True)})
    optimizer.insertSpecific("b", {"learningRate": (0.5, False), "momentum": (0.9, True)})
    assert optimizer.collect_variable_values().keys() == {"learningRate/b"}
    slow, fast = numpy_sgd(0.1, 0, 0, 0), numpy_sgd(0.5, 0.9, 0, 0)
    agree(after_steps(optimizer), {"a": slow["a"], "b": fast["b"]})
    assert optimizer.learningRates().getDefault().val() == 0.1
    with pytest.raises(PopARTError, match="values of its own already"):
        optimizer.insertSpecific("b", {"learningRate": (0.1, False)})


def test_momentum_that_becomes_nesterovs_without_compiling() -> None:
    kind = SGDAccumulatorAndMomentum.Separate
    given = {**values(LearningRate=0.1, Momentum=0.9), "nesterov": (False, False)}
    plain = SGD(given, accumulatorAndMomentum=kind)
    ahead = SGD({**given, "nesterov": (True, False)}, accumulatorAndMomentum=kind)
    plain.check_replacement(ahead)
    agree(after_steps(plain), by_torch(lambda optim, p: optim.SGD(p, lr=0.1, momentum=0.9)))
    agree(
        after_steps(ahead),
        by_torch(lambda optim, p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True)),
    )


def test_a_negative_loss_scaling_is_undone_too() -> None:
    agree(after_steps(SGD(values(-4.0)), -4.0), numpy_sgd(0.1, 0, 0, 0))


def test_what_the_originals_programs_read() -> None:
    optimizer = SGD(values(4.0, Momentum=0.5, LearningRate=0.3, WeightDecay=0.2))
    assert optimizer.compute_scalars({"w": "FLOAT16"}, "FLOAT", 2) == {
        "lossScaling_FLOAT": 4.0,
        "scaledLearningRate1___default___FLOAT16": 0.3,
        "dampeningScaleFactor1___default___FLOAT16": 1 / 8,
    }
    plain = SGD(values(4.0, WeightDecay=0.2, LearningRate=0.3))
    plain.insertSpecific("w", {"weightDecay": (0.1, False)})
    found = plain.compute_scalars({"w": "FLOAT", "v": "FLOAT"}, "FLOAT16", 1)
    assert found["scaledLearningRate0___specific___w"] == 0.3 / 4
    assert found["weightDecayScaleFactor0___specific___w"] == 1 - 0.3 * 0.1
    assert found["weightDecayScaleFactor0___default___FLOAT"] == 1 - 0.3 * 0.2
    adam = Adam({"defaultBeta1": (0.8, False), "maxWeightNorm": (3, False)})
    assert adam.compute_scalars({"w": "FLOAT"}, "FLOAT", 1) == {
        "adamBeta1___default___FLOAT": 0.8,
        "maxWeightNorm___default___FLOAT": 3.0,
    }


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: SGD({"rate": (0.1, True)}), "rate"),
        (lambda: SGD({"defaultLearningRate": 0.1}), "pair"),
        (lambda: SGD({"defaultLearningRate": (-0.1, False)}), "Negative learningRate"),
        (lambda: ConstSGD(0.0), "Constant, zero"),
        (lambda: SGD({"nesterov": (1, True), "defaultDampening": (0.1, True)}), "dampening"),
        (lambda: Adam({"defaultEps": (0, True)}), "Non-positive eps"),
        (lambda: Adam({}, accl1_type=DataType.INT32), "accl1_type"),
        (lambda: Adaptive({}, AdaptiveMode.AdaGrad, rmsprop_tf_variant=True), "AdaGrad"),
        (lambda: SGD({"lossScaling": (0, True)}), "Loss scaling cannot be 0"),
        (
            lambda: SGD({"nesterov": (1, True)}).insertSpecific("a", {"dampening": (0.1, True)}),
            "dampening",
        ),
        (lambda: SGD({}).insertSpecific("a", {"lossScaling": (1, True)}), "lossScaling"),
        (lambda: ClipNormSettings(["a"], 0), "maxNorm"),
    ],
)
def test_what_cannot_be(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(PopARTError, match=match):
        make()


def test_what_may_replace_an_optimizer() -> None:
    first = SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})
    first.check_replacement(
        SGD({"defaultLearningRate": (0.2, False), "defaultMomentum": (0.9, True)})
    )
    for other in (
        SGD({"defaultLearningRate": (0.2, True), "defaultMomentum": (0.9, True)}),
        SGD({"defaultLearningRate": (0.2, False), "defaultMomentum": (0.8, True)}),
        Adam({}),
    ):
        with pytest.raises(PopARTError):
            first.check_replacement(other)
