"""What a Keras model must be to run in the scope of a strategy."""

from __future__ import annotations

import importlib
from typing import Any

from ipujax.checks.arguments import Checks
from ipujax.errors import KerasError, KerasTypeError

check = Checks(KerasTypeError, KerasError)


def check_model(model: Any, kind: str) -> None:
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
