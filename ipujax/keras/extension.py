"""Extends Keras's classes so that models run as ipujax programs in a strategy's scope.

Keras's JAX trainer asks itself for a `train_function`, a `test_function` and a `predict_function`.
Once extended, it asks for the strategy first; without one, everything is Keras's own.
"""

from __future__ import annotations

import functools
import importlib
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ipujax.doors.keras import import_keras
from ipujax.keras import (
    array_batches,
    atomic_saving,
    backups,
    data_positions,
    process_agreement,
    stage_config,
)
from ipujax.keras.execution_functions import ExecutionFunction, report
from ipujax.keras.keras_batches import Batches
from ipujax.keras.keras_checks import check
from ipujax.keras.layer_stages import (
    get_pipeline_stage_assignment,
    reset_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
)
from ipujax.keras.model_options import set_gradient_accumulation_options, set_pipelining_options
from ipujax.keras.queue_options import set_infeed_queue_options, set_outfeed_queue_options
from ipujax.keras.stage_summary import print_pipeline_stage_assignment_summary
from ipujax.keras.strategy import current_strategy
from ipujax.training import release_state

if TYPE_CHECKING:
    import keras

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
"""The methods that are added to Keras's models."""

_lock = threading.Lock()
_KINDS = ("train", "test", "predict")


def extend_keras() -> None:
    """Extends Keras's classes, once in a process.

    Raises:
      MissingExtraError: (an `ImportError`) Keras is not installed.
      KerasError: (a `ValueError`) Keras runs on another backend than JAX.
    """
    import_keras()
    module = importlib.import_module("keras.src.backend.jax.trainer")
    with _lock:
        trainer = module.JAXTrainer
        if isinstance(vars(trainer).get("make_train_function"), functools.partialmethod):
            return
        for kind in _KINDS:
            name = f"make_{kind}_function"
            setattr(
                trainer, name, functools.partialmethod(_make_function, kind, vars(trainer)[name])
            )
        data_positions.extend_epoch_iterator(module.JAXEpochIterator, _open_batches)
        trainer._purge_model_variables = _replace_in_strategy_scope(
            trainer._purge_model_variables, _leave_variables_in_place
        )
        trainer.jax_state_sync = _release_state_before(trainer.jax_state_sync)
        model = importlib.import_module("keras.src.models.model").Model
        for method in METHODS:
            setattr(model, method.__name__, check.guard(method))
        atomic_saving.extend_saving()
        backups.extend_backup_callback()
        process_agreement.extend_file_callbacks()
    stage_config.extend_model_configs()


def _replace_in_strategy_scope(
    original: Callable[..., object], replacement: Callable[..., object]
) -> Callable[..., object]:
    """Returns a method that calls a replacement in the scope of a strategy."""

    @functools.wraps(original)
    def call_by_scope(self: object, *args: object, **kwargs: object) -> object:
        return (original if current_strategy() is None else replacement)(self, *args, **kwargs)

    return call_by_scope


def _release_state_before(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns Keras's method that writes a state into the model's variables, for several devices.

    Each array stays on the device of the IPU that uses it, and Keras can still compute with those
    of several devices outside of programs, as in `model(x)`.
    """

    @functools.wraps(original)
    def sync_released_state(self: Any) -> None:
        state = getattr(self, "_jax_state", None)
        if current_strategy() is not None and state and not self._jax_state_synced:
            # JAX takes the dicts and lists that Keras makes of a state for leaves.
            self._jax_state = {kind: release_state(list(arrays)) for kind, arrays in state.items()}
        original(self)

    return sync_released_state


def _make_function(
    model: keras.Model, kind: str, original: Callable[..., object], force: bool = False
) -> object:
    """Returns the model's train, test or predict function, making it if there is none."""
    strategy, name = current_strategy(), f"{kind}_function"
    function = getattr(model, name)
    if strategy is None:
        return original(model, force or isinstance(function, ExecutionFunction))
    if force or not isinstance(function, ExecutionFunction) or not function.was_built_for(strategy):
        setattr(model, name, ExecutionFunction(model, kind, strategy))
    getattr(model, name).epochs = data_positions.latest_epoch_iterator()
    return getattr(model, name)


def _open_batches(epochs: Any) -> Batches:
    """Returns the batches of an `EpochIterator`."""
    adapter, steps = epochs.data_adapter, epochs.steps_per_epoch
    # As Keras, which completes the last execution of an epoch.
    per_epoch = steps and math.ceil(steps / epochs.steps_per_execution) * epochs.steps_per_execution
    counts = (None, None) if steps else _count_batches(adapter)
    return Batches(
        array_batches.iterate_batches(adapter, epochs.steps_per_execution), per_epoch, *counts
    )


def _count_batches(adapter: Any) -> tuple[int | None, int | None]:
    """Returns the number of batches, and the examples of an incomplete last one or None.

    Both are None where the data set does not know, such as for a generator.
    """
    try:
        incomplete = adapter.partial_batch_size if adapter.has_partial_batch else None
    except NotImplementedError:
        return None, None
    return adapter.num_batches, incomplete


def _leave_variables_in_place(*_: object, **__: object) -> None:
    """Keeps the model's variables, so that an error in the middle of an epoch loses none."""
