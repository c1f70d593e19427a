"""The requirements of a Keras model and its data in the scope of a strategy."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING

from ipujax.ground import Checks, KerasError, KerasTypeError, count_with_noun
from ipujax.keras.keras_batches import Batches
from ipujax.keras.program_mode import ProgramMode
from ipujax.system import SYSTEM

if TYPE_CHECKING:
    import keras

check = Checks(KerasTypeError, KerasError)


def check_execution_shares(mode: ProgramMode, batches: Batches, steps: int) -> None:
    """Refuses executions and data sets that replicas and micro-batches cannot share evenly.

    Raises:
      KerasError: (a `ValueError`) numbers that do not divide, or an incomplete last batch.
    """
    batches_per_step = mode.batches_per_step
    if batches_per_step == 1:
        return
    if steps % batches_per_step:
        raise check.value_error(
            f"steps_per_execution={steps} of model {mode.model.name!r} is no multiple of "
            f"{_describe_replicas(mode)}",
            "model.compile(..., "
            f"steps_per_execution={math.ceil(steps / batches_per_step) * batches_per_step})",
        )
    if batches.incomplete:
        raise check.value_error(
            f"the last of the {batches.count} batches has {batches.incomplete} examples only, and "
            f"{_describe_replicas(mode)} need batches of one size",
            "use another batch_size, or "
            f"{_suggest_batch_count(batches_per_step, (batches.count or 1) - 1)}",
        )
    if batches.count:
        check_batch_count(mode, batches.count)


def check_batch_count(mode: ProgramMode, count: int | None) -> int:
    """Returns the number of batches; raises if replicas and micro-batches cannot share it.

    Raises:
      KerasError: (a `ValueError`) the number is no multiple of the batches in a step.
    """
    batches_per_step = mode.batches_per_step
    if count == 1 and batches_per_step > 1:
        raise check.value_error(
            f"there is 1 batch for model {mode.model.name!r}, which {_describe_replicas(mode)} "
            "cannot share",
            f"give a multiple of {batches_per_step} batches; train_on_batch and its kin always "
            f"have 1: use fit, evaluate or predict with a multiple of {batches_per_step} batches",
        )
    if not count or count % batches_per_step:
        raise check.value_error(
            f"model {mode.model.name!r} has {count or 0} batch{'es' * (count != 1)}, which "
            f"{_describe_replicas(mode)} cannot share evenly",
            _suggest_batch_count(batches_per_step, count or 0),
        )
    return count


def _suggest_batch_count(batches_per_step: int, count: int) -> str:
    """Returns the advice how to have a multiple of a number of batches."""
    if count < batches_per_step:
        return (
            f"have at least {batches_per_step} batches, with more data or a smaller batch_size; "
            "train_on_batch and the like have one only: use fit, evaluate and predict instead"
        )
    return (
        f"stop before the rest: steps_per_epoch={count // batches_per_step * batches_per_step} "
        "(`steps` in evaluate and predict, `validation_steps` for validation)"
    )


def _describe_replicas(mode: ProgramMode) -> str:
    replicas = count_with_noun(mode.replicas, "replica")
    if mode.accumulation == 1:
        return replicas
    return f"{replicas} x {mode.accumulation} accumulated micro-batches = {mode.batches_per_step}"


def check_ipus(model: keras.Model, required_ipus: int, device: str) -> None:
    """Refuses a pipeline over more IPUs than the device has.

    Raises:
      KerasError: (a `ValueError`) the pipeline needs more IPUs.
    """
    available_ipus = SYSTEM.device(device).num_ipus
    if required_ipus > available_ipus:
        raise check.value_error(
            f"the pipeline stages of model {model.name!r} are on "
            f"{count_with_noun(required_ipus, 'IPU')}, and {device} has {available_ipus}",
            f"set IPUConfig.auto_select_ipus = {1 << (required_ipus - 1).bit_length()}, or put "
            "several stages on one IPU: model.set_pipelining_options(device_mapping=...)",
        )


def check_step_not_overridden(model: keras.Model, name: str) -> None:
    """Refuses a model whose class overrides a step that a pipeline replaces.

    Raises:
      KerasError: (a `ValueError`) the model's class overrides it.
    """
    trainer = importlib.import_module("keras.src.backend.jax.trainer").JAXTrainer
    if getattr(type(model), name) is not getattr(trainer, name):
        raise check.value_error(
            f"model {model.name!r} overrides {name}, which a pipelined model cannot: its stages "
            "are those of the forward pass",
            "override compute_loss or compute_metrics, or run the model without stages",
        )


def check_model(model: keras.Model) -> None:
    """Refuses a model that runs eagerly or is distributed by Keras.

    Raises:
      KerasError: (a `ValueError`) `run_eagerly` or `keras.distribution` is set.
    """
    if model.run_eagerly:
        raise check.value_error(
            f"model {model.name!r} was compiled with run_eagerly=True, and an IPU runs compiled "
            "programs only",
            "compile it without run_eagerly, or call it outside the strategy's scope to debug it",
        )
    distribution = importlib.import_module("keras").distribution
    if distribution.distribution() is not None:
        raise check.value_error(
            "keras.distribution is set, and in the scope the strategy says what runs where",
            "keras.distribution.set_distribution(None); a device with more IPUs than the model "
            "needs trains data-parallel",
        )
