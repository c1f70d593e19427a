"""What tests share that run one Keras program twice: in the scope of a strategy, and alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import numpy as np
import pytest

import ipujax as ipu

keras = pytest.importorskip("keras", reason="the extra `keras` is not installed")

Result = TypeVar("Result")
Kind = Literal["sequential", "functional", "subclass"]
KINDS: tuple[Kind, ...] = ("sequential", "functional", "subclass")
SEED = 11


@contextmanager
def on_ipus(count: int = 1) -> Iterator[None]:
    """The scope of a strategy, on a system of so many IPUs."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = count
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        yield


def twins(program: Callable[[], Result], ipus: int = 1) -> tuple[Result, Result]:
    """What a program gives in the scope, and what Keras alone gives, from one seed."""

    def run() -> Result:
        keras.utils.clear_session(free_memory=False)  # which counts names of layers
        keras.utils.set_random_seed(SEED)
        return program()

    with on_ipus(ipus):
        ours = run()
    return ours, run()


def alike(ours: Any, keras_own: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Fails unless two nests of numbers have one structure and the same numbers."""
    keras.tree.assert_same_structure(ours, keras_own)
    pairs = zip(keras.tree.flatten(ours), keras.tree.flatten(keras_own), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def values(variables: Sequence[Any]) -> list[Any]:
    """The variables' values, as NumPy arrays."""
    return [np.array(variable.value) for variable in variables]


class Layered(keras.Model):
    """A subclassed model that calls its layers one after the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        super().__init__()
        self.parts = list(parts)

    def call(self, inputs: Any) -> Any:
        """Gives what the last layer gives."""
        for part in self.parts:
            inputs = part(inputs)
        return inputs


def model_of(kind: Kind, parts: Sequence[Any], shape: tuple[int, ...] | None = None) -> Any:
    """A model of the kind from layers; with no shape its weights come with its first batch."""
    if kind == "subclass":
        return Layered(parts)
    if kind == "sequential":
        first = [] if shape is None else [keras.Input(shape)]
        return keras.Sequential([*first, *parts])
    inputs = keras.Input(shape if shape is not None else (1,))
    outputs: Any = inputs
    for part in parts:
        outputs = part(outputs)
    return keras.Model(inputs, outputs)


class Bias(keras.layers.Layer):
    """Adds one trained vector, zeros at first."""

    def build(self, input_shape: Any) -> None:
        """Makes the vector."""
        self.bias = self.add_weight(name="bias", shape=(input_shape[-1],), initializer="zeros")

    def call(self, inputs: Any) -> Any:
        """Adds it."""
        return inputs + self.bias


class Counter(keras.callbacks.Callback):
    """Counts the calls of each hook, and keeps the batch numbers that hooks of batches get."""

    PHASES = ("epoch", "train", "test", "predict", "train_batch", "test_batch", "predict_batch")
    HOOKS = tuple(f"on_{phase}_{when}" for phase in PHASES for when in ("begin", "end"))

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(self.HOOKS, 0)
        self.order: list[tuple[str, Any]] = []
        for hook in self.HOOKS:
            setattr(self, hook, self.counting(hook))

    def counting(self, hook: str) -> Callable[..., None]:
        """A hook that counts itself."""

        def count(number: Any = None, logs: Any = None) -> None:
            self.counts[hook] += 1
            self.order.append((hook, number if isinstance(number, int) else None))

        return count
