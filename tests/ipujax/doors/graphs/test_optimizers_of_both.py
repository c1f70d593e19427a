"""PopTorch's optimizers and PopART's are two vocabularies for the same steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax import popart, poptorch  # noqa: E402
from tests.ipujax.poptorch.stepping import SHAPES, both, parameters_of  # noqa: E402

T, P = torch.optim, poptorch.optim
DECAY, REGULARIZED = popart.WeightDecayMode.Decay, popart.WeightDecayMode.L2Regularization
SEPARATE = popart.SGDAccumulatorAndMomentum.Separate


def values(is_constant: bool = True, **numbers: float) -> dict[str, tuple[float, bool]]:
    """Hyperparameters, of which every second one is constant, beginning with the first or not."""
    return {
        f"default{name}": (value, (place % 2 == 0) is is_constant)
        for place, (name, value) in enumerate(numbers.items())
    }


ADAM = {"LearningRate": 0.05, "Beta1": 0.8, "Beta2": 0.95, "Eps": 1e-4, "WeightDecay": 0.1}
TORCHS_ADAM = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}
RMS = {"LearningRate": 0.1, "Eps": 1e-2, "Alpha": 0.9, "WeightDecay": 0.1}
TORCHS_RMS = {"lr": 0.1, "eps": 1e-2, "alpha": 0.9, "weight_decay": 0.1}

PAIRS: dict[str, tuple[Callable[[Any], Any], Callable[[bool], popart.Optimizer]]] = {
    "sgd": (
        lambda p: T.SGD(p, lr=0.1, weight_decay=0.2),
        lambda is_constant: popart.SGD(values(is_constant, LearningRate=0.1, WeightDecay=0.2)),
    ),
    "momentum": (
        lambda p: T.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2),
        lambda is_constant: popart.SGD(
            values(is_constant, LearningRate=0.1, Momentum=0.9, WeightDecay=0.2)
        ),
    ),
    "nesterov": (
        lambda p: T.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2, nesterov=True),
        lambda is_constant: popart.SGD(
            {
                **values(is_constant, VelocityScaling=4.0, LearningRate=0.1, Momentum=0.9),
                "defaultWeightDecay": (0.2, True),
                "nesterov": (1, is_constant),
            },
            accumulatorAndMomentum=SEPARATE,
        ),
    ),
    "adam": (
        lambda p: T.Adam(p, **TORCHS_ADAM),
        lambda is_constant: popart.Adam(values(is_constant, **ADAM), weight_decay_mode=REGULARIZED),
    ),
    "adamw": (
        lambda p: P.AdamW(p, **TORCHS_ADAM),
        lambda is_constant: popart.Adam(
            values(is_constant, **ADAM), weight_decay_mode=DECAY, scaled_optimizer_state=True
        ),
    ),
    "adamw without correction": (
        lambda p: P.AdamW(p, **TORCHS_ADAM, bias_correction=False),
        lambda is_constant: popart.Adam(values(is_constant, **ADAM), popart.AdamMode.AdamNoBias),
    ),
    "adamax": (
        lambda p: T.Adamax(p, lr=0.05, betas=(0.8, 0.95), eps=1e-8, weight_decay=0.1),
        lambda is_constant: popart.Adam(
            values(is_constant, **{**ADAM, "Eps": 1e-8}), popart.AdamMode.AdaMax, REGULARIZED
        ),
    ),
    "lamb": (
        lambda p: P.LAMB(p, **TORCHS_ADAM, max_weight_norm=1.5),
        lambda is_constant: popart.Adam(
            values(is_constant, **ADAM, MaxWeightNorm=1.5), popart.AdamMode.Lamb
        ),
    ),
    "adagrad": (
        lambda p: T.Adagrad(p, lr=0.1, eps=1e-4, weight_decay=0.1),
        lambda is_constant: popart.Adaptive(
            values(is_constant, LearningRate=0.1, Eps=1e-4, WeightDecay=0.1),
            popart.AdaptiveMode.AdaGrad,
            REGULARIZED,
        ),
    ),
    "rmsprop": (
        lambda p: T.RMSprop(p, **TORCHS_RMS, momentum=0.5),
        lambda is_constant: popart.Adaptive(
            values(is_constant, **RMS, Momentum=0.5), popart.AdaptiveMode.RMSProp, REGULARIZED
        ),
    ),
    "rmsprop as tensorflow has it": (
        lambda p: P.RMSprop(p, **TORCHS_RMS, momentum=0.5, use_tf_variant=True),
        lambda is_constant: popart.Adaptive(
            values(is_constant, **RMS, Momentum=0.5),
            popart.AdaptiveMode.RMSProp,
            REGULARIZED,
            rmsprop_tf_variant=True,
        ),
    ),
    "centered": (
        lambda p: T.RMSprop(p, **TORCHS_RMS, centered=True),
        lambda is_constant: popart.Adaptive(
            values(is_constant, **RMS), popart.AdaptiveMode.CenteredRMSProp, REGULARIZED
        ),
    ),
    "adadelta": (
        lambda p: T.Adadelta(p, lr=0.5, eps=1e-4, rho=0.9),
        lambda is_constant: popart.Adaptive(
            values(is_constant, LearningRate=0.5, Eps=1e-4, Alpha=0.9),
            popart.AdaptiveMode.AdaDelta,
        ),
    ),
}


@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "variable"])
@pytest.mark.parametrize("name", PAIRS)
def test_both_make_the_same_steps(name: str, is_constant: bool) -> None:
    of_torch, of_popart = PAIRS[name]
    sides = both(of_torch)
    transformation = of_popart(is_constant).build_transformation()
    step = jax.jit(transformation.update)
    weights = {n: jnp.asarray(p.detach().numpy()) for n, p in parameters_of().items()}
    state = transformation.init(weights)
    random = np.random.default_rng(1)
    for _ in range(4):
        gradients = {n: jnp.float32(random.normal(size=shape)) for n, shape in SHAPES.items()}
        sides.step(gradients)
        changes, state = step(gradients, state, weights)
        weights = {n: weights[n] + changes[n] for n in weights}  # pyright: ignore
    for name, weight in weights.items():
        np.testing.assert_allclose(weight, sides.variables[name], 5e-6, 2e-6, err_msg=name)
