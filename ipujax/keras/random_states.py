"""The random generators of the host that Keras's data sets draw from, as text for files."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any, TypeAlias

import numpy as np

RandomState: TypeAlias = dict[str, Any]
"""The states by the libraries' names; JSON can hold them, with lists in the place of arrays."""


def capture() -> RandomState:
    """The states of Python's, NumPy's, Keras's and, where it is in use, PyTorch's generator."""
    state: RandomState = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
    }
    generator = _keras_generator()
    if generator is not None:
        state["keras"] = np.asarray(generator.state.value)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.random.get_rng_state().numpy()
    return state


def restore(state: RandomState) -> None:
    """Has the generators go on from where they were captured."""
    version, numbers, next_gauss = state["python"]
    random.setstate((version, tuple(numbers), next_gauss))
    np.random.set_state(state["numpy"])
    if "keras" in state:
        module = importlib.import_module("keras.src.random.seed_generator")
        module.global_seed_generator().state.assign(state["keras"])
    torch: Any = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.random.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))


def _keras_generator() -> Any:
    """The one behind `keras.random`; None as long as nothing was drawn from it."""
    module = importlib.import_module("keras.src.random.seed_generator")
    state = importlib.import_module("keras.src.backend.common.global_state")
    return state.get_global_attribute(module.GLOBAL_SEED_GENERATOR)
