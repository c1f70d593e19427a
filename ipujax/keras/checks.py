"""What a Keras model must be to run in the scope of a strategy."""

from __future__ import annotations

import importlib
import math
from typing import Any

from ipujax.checks.arguments import Checks
from ipujax.errors import KerasError, KerasTypeError
from ipujax.keras.batches import Batches
from ipujax.keras.mode import Mode
from ipujax.report.words import counted
from ipujax.system.devices import SYSTEM

check = Checks(KerasTypeError, KerasError)


def check_shares(mode: Mode, batches: Batches, steps: int) -> None:
    """Refuses executions and data sets that replicas and micro-batches cannot share evenly.

    Raises:
      KerasError: (a `ValueError`) numbers that do not divide, or an incomplete last batch.
    """
    each = mode.batches_per_step
    if each == 1:
        return
    if steps % each:
        raise check.refuse(
            f"steps_per_execution={steps} of model {mode.model.name!r} is no multiple of "
            f"{_product(mode)}",
            f"model.compile(..., steps_per_execution={math.ceil(steps / each) * each})",
        )
    if batches.incomplete:
        raise check.refuse(
            f"the last of the {batches.count} batches has {batches.incomplete} examples only, and "
            f"{_product(mode)} need batches of one size",
            f"use another batch_size, or {_steps_of(each, (batches.count or 1) - 1)}",
        )
    if batches.count:
        check_share(mode, batches.count)


def check_share(mode: Mode, count: int | None) -> int:
    """The number of batches, once it can be shared evenly.

    Raises:
      KerasError: (a `ValueError`) it cannot.
    """
    each = mode.batches_per_step
    if count == 1 and each > 1:
        raise check.refuse(
            f"there is 1 batch for model {mode.model.name!r}, which {_product(mode)} cannot share",
            f"give a multiple of {each} batches; train_on_batch and its kin always have 1: use "
            f"fit, evaluate or predict with a multiple of {each} batches",
        )
    if not count or count % each:
        raise check.refuse(
            f"model {mode.model.name!r} has {count or 0} batch{'es' * (count != 1)}, which "
            f"{_product(mode)} cannot share evenly",
            _steps_of(each, count or 0),
        )
    return count


def _steps_of(each: int, count: int) -> str:
    """What to do to have a multiple of a number of batches, with so many at most."""
    if count < each:
        return (
            f"have at least {each} batches, with more data or a smaller batch_size; "
            "train_on_batch and the like have one only: use fit, evaluate and predict instead"
        )
    return (
        f"stop before the rest: steps_per_epoch={count // each * each} (`steps` in evaluate and "
        "predict, `validation_steps` for validation)"
    )


def _product(mode: Mode) -> str:
    replicas = counted(mode.replicas, "replica")
    if mode.accumulation == 1:
        return replicas
    return f"{replicas} x {mode.accumulation} accumulated micro-batches = {mode.batches_per_step}"


def check_ipus(model: Any, used: int, device: str) -> None:
    """Refuses a pipeline over more IPUs than the device has.

    Raises:
      KerasError: (a `ValueError`) it is over more.
    """
    there = SYSTEM.device(device).num_ipus
    if used > there:
        raise check.refuse(
            f"the pipeline stages of model {model.name!r} are on {counted(used, 'IPU')}, and "
            f"{device} has {there}",
            f"set IPUConfig.auto_select_ipus = {1 << (used - 1).bit_length()}, or put several "
            "stages on one IPU: model.set_pipelining_options(device_mapping=...)",
        )


def check_own(model: Any, name: str) -> None:
    """Refuses a step of the user's own, of which a pipeline knows nothing.

    Raises:
      KerasError: (a `ValueError`) the model's class overrides it.
    """
    trainer = importlib.import_module("keras.src.backend.jax.trainer").JAXTrainer
    if getattr(type(model), name) is not getattr(trainer, name):
        raise check.refuse(
            f"model {model.name!r} overrides {name}, which a pipelined model cannot: its stages "
            "are those of the forward pass",
            "override compute_loss or compute_metrics, or run the model without stages",
        )


def check_model(model: Any) -> None:
    """Refuses what cannot be compiled.

    Raises:
      KerasError: (a `ValueError`) a model that runs eagerly, or that Keras itself distributes.
    """
    if model.run_eagerly:
        raise check.refuse(
            f"model {model.name!r} was compiled with run_eagerly=True, and an IPU runs compiled "
            "programs only",
            "compile it without run_eagerly, or call it outside the strategy's scope to debug it",
        )
    distribution = importlib.import_module("keras").distribution
    if distribution.distribution() is not None:
        raise check.refuse(
            "keras.distribution is set, and in the scope the strategy says what runs where",
            "keras.distribution.set_distribution(None); a device with more IPUs than the model "
            "needs trains data-parallel",
        )
