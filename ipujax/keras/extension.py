"""How Keras's classes come to run programs of ours, in the scope of a strategy.

Keras's JAX trainer asks itself for a `train_function`, a `test_function` and a `predict_function`.
Once extended, it asks for the strategy first; without one, everything is Keras's own.
"""

from __future__ import annotations

import functools
import importlib
import math
import threading
from collections.abc import Callable
from typing import Any

from ipujax.keras.backend import keras
from ipujax.keras.batches import Batches
from ipujax.keras.checks import check_model
from ipujax.keras.programs import Program
from ipujax.keras.strategy import Strategy, current

_lock = threading.Lock()
_KINDS = ("train", "test", "predict")


def extend() -> None:
    """Extends Keras's classes, once in a process.

    Raises:
      MissingExtraError: (an `ImportError`) Keras is not installed.
      KerasError: (a `ValueError`) it runs on another backend than JAX.
    """
    keras()
    module = importlib.import_module("keras.src.backend.jax.trainer")
    with _lock:
        trainer = module.JAXTrainer
        if isinstance(vars(trainer).get("make_train_function"), functools.partialmethod):
            return
        for kind in _KINDS:
            name = f"make_{kind}_function"
            setattr(trainer, name, functools.partialmethod(_make, kind, vars(trainer)[name]))
        epochs = module.JAXEpochIterator
        epochs._get_iterator = _instead(epochs._get_iterator, _batches)
        trainer._purge_model_variables = _instead(trainer._purge_model_variables, _kept)


def _instead(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is ours in the scope of a strategy."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (original if current() is None else ours)(self, *args, **kwargs)

    return method


def _make(model: Any, kind: str, original: Callable[..., Any], force: bool = False) -> Any:
    """Makes the function of a kind, unless the model has it."""
    strategy, name = current(), f"{kind}_function"
    made = getattr(model, name)
    if strategy is None:
        return original(model, force or isinstance(made, Program))
    if not isinstance(made, Program) or made.device != strategy.device or force:
        made = _program(model, kind, strategy)
        setattr(model, name, made)
    return made


def _program(model: Any, kind: str, strategy: Strategy) -> Program:
    check_model(model, kind)
    step = model.train_step if kind == "train" else model.test_step
    if kind == "predict":

        def step(state: Any, data: Any) -> Any:
            outputs, untrained = model.predict_step(state, data)
            return outputs, (state[0], untrained)

    return Program(
        step, model.steps_per_execution, strategy.device, f"{model.name}_{kind}", kind == "predict"
    )


def _batches(epochs: Any) -> Batches:
    """The batches of an `EpochIterator`."""
    steps = epochs.steps_per_epoch
    executions = math.ceil(steps / epochs.steps_per_execution) if steps else 0
    # As Keras, which completes the last execution of an epoch.
    return Batches(
        epochs.data_adapter.get_jax_iterator(), executions * epochs.steps_per_execution or None
    )


def _kept(*_: Any, **__: Any) -> None:
    """A model keeps its variables, so that an error in the middle of an epoch costs none."""
