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

from ipujax.frontends.keras_backend import keras
from ipujax.keras import arrays, backups, instances, positions, stage_config, whole_files
from ipujax.keras.assignment import (
    get_pipeline_stage_assignment,
    reset_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
)
from ipujax.keras.batches import Batches
from ipujax.keras.checks import check
from ipujax.keras.functions import Function, report
from ipujax.keras.options import set_gradient_accumulation_options, set_pipelining_options
from ipujax.keras.queue_options import set_infeed_queue_options, set_outfeed_queue_options
from ipujax.keras.stage_summary import print_pipeline_stage_assignment_summary
from ipujax.keras.strategy import current

METHODS = (
    set_gradient_accumulation_options,
    set_pipelining_options,
    set_infeed_queue_options,
    set_outfeed_queue_options,
    get_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
    reset_pipeline_stage_assignment,
    print_pipeline_stage_assignment_summary,
    report,
)
"""What models get besides."""

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
        positions.extend(module.JAXEpochIterator, _batches)
        trainer._purge_model_variables = _instead(trainer._purge_model_variables, _kept)
        model = importlib.import_module("keras.src.models.model").Model
        for method in METHODS:
            setattr(model, method.__name__, check.guard(method))
        whole_files.extend()
        backups.extend()
        instances.extend()
    stage_config.extend()


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
        return original(model, force or isinstance(made, Function))
    if force or not isinstance(made, Function) or not made.is_for(strategy):
        setattr(model, name, Function(model, kind, strategy))
    getattr(model, name).epochs = positions.latest_epochs()
    return getattr(model, name)


def _batches(epochs: Any) -> Batches:
    """The batches of an `EpochIterator`."""
    adapter, steps = epochs.data_adapter, epochs.steps_per_epoch
    # As Keras, which completes the last execution of an epoch.
    limit = steps and math.ceil(steps / epochs.steps_per_execution) * epochs.steps_per_execution
    counts = (None, None) if steps else _counts(adapter)
    return Batches(arrays.batches(adapter, epochs.steps_per_execution), limit, *counts)


def _counts(adapter: Any) -> tuple[int | None, int | None]:
    """How many batches of one size a data set has, and the size of a smaller last one.

    None each where it does not say; of generators and the like nobody knows.
    """
    try:
        incomplete = adapter.partial_batch_size if adapter.has_partial_batch else None
    except NotImplementedError:
        return None, None
    return adapter.num_batches, incomplete


def _kept(*_: Any, **__: Any) -> None:
    """A model keeps its variables, so that an error in the middle of an epoch costs none."""
