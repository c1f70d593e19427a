"""What the layers do in the scope of a strategy is what they do without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ipujax as ipu

keras = pytest.importorskip("keras")
from ipujax.ipu_strategy import IPUStrategy  # noqa: E402
from ipujax.keras import layers  # noqa: E402
from ipujax.pipelining_ops import RecomputationMode  # noqa: E402
from tests.ipujax.keras.modelling import with_and_without  # noqa: E402

IDS = np.random.default_rng(0).integers(0, 5, (16, 4))
LABELS = IDS.sum(axis=1, keepdims=True).astype(np.float32)


def model() -> Any:
    """Layers with state, seeds and variables, the same each time."""
    keras.utils.set_random_seed(1)
    made = keras.Sequential(
        [
            keras.Input(batch_shape=(4, 4), dtype="int32"),
            layers.Embedding(5, 4),
            layers.GRU(4, stateful=True, dropout=0.2),
            layers.LayerNormalization(),
            layers.Dropout(0.2),
            keras.layers.Dense(1),
        ]
    )
    made.compile("adam", "mse", steps_per_execution=2)
    return made


@pytest.mark.exhaustive
def test_models_are_trained_alike():
    def use() -> Any:
        made = model()
        history = made.fit(IDS, LABELS, batch_size=4, epochs=2, shuffle=False, verbose=0).history
        seeds = [v.numpy() for v in made.non_trainable_variables]
        return [history["loss"], *made.get_weights(), *seeds]

    for ours, theirs in zip(*with_and_without(use), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_pipeline_learns_the_same_with_recomputation():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = True
    config.configure_ipu_system()
    weights = []
    for mode in (None, RecomputationMode.RecomputeAndBackpropagateInterleaved):
        with IPUStrategy().scope():
            keras.utils.set_random_seed(1)
            made = keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.Dense(4, activation="tanh"),
                    layers.RecomputationCheckpoint(),
                    layers.LayerNormalization(),
                    layers.Dropout(0.2),
                    keras.layers.Dense(1),
                ]
            )
            made.compile("sgd", "mse", steps_per_execution=4)
            made.set_pipelining_options(
                gradient_accumulation_steps_per_replica=4, recomputation_mode=mode
            )
            made.set_pipeline_stage_assignment([0, 0, 0, 0, 1])
            made.fit(IDS.astype(np.float32), LABELS, batch_size=4, epochs=2, verbose=0)
        weights.append(made.get_weights())
    for kept, recomputed in zip(*weights, strict=True):
        np.testing.assert_allclose(kept, recomputed, rtol=1e-5, atol=1e-6)
