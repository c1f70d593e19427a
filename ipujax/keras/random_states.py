"""The states of the host's random generators that Keras's data sets draw from."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any, TypeAlias

import numpy as np

from ipujax.ground import Keywords

RandomState: TypeAlias = Keywords
"""The states by the libraries' names; JSON can hold them, with lists instead of arrays."""


def capture_generators() -> RandomState:
    """Returns the states of the generators of Python, NumPy, Keras and PyTorch, where in use."""
    state: RandomState = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
    }
    generator = _find_keras_generator()
    if generator is not None:
        state["keras"] = np.asarray(generator.state.value)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.random.get_rng_state().numpy()
    return state


def restore_generators(state: RandomState) -> None:
    """Restores the states of the generators that were captured."""
    version, numbers, next_gauss = state["python"]
    random.setstate((version, tuple(numbers), next_gauss))
    np.random.set_state(state["numpy"])
    if "keras" in state:
        module = importlib.import_module("keras.src.random.seed_generator")
        module.global_seed_generator().state.assign(state["keras"])
    torch: Any = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.random.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))


def _find_keras_generator() -> Any:
    """Returns the generator behind `keras.random`; None as long as it was not used."""
    module = importlib.import_module("keras.src.random.seed_generator")
    state = importlib.import_module("keras.src.backend.common.global_state")
    return state.get_global_attribute(module.GLOBAL_SEED_GENERATOR)
