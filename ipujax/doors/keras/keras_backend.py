"""Access to Keras where it is installed and runs on JAX."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path

from ipujax.ground import KerasError, MissingExtraError, hide_package_lines

_SWITCH = (
    'set KERAS_BACKEND=jax in the environment (os.environ["KERAS_BACKEND"] = "jax") before Keras '
    "is first imported, or write it into ~/.keras/keras.json"
)


def import_keras() -> types.ModuleType:
    """Imports and returns the package Keras.

    Raises:
      MissingExtraError: (an `ImportError`) it is not installed.
      KerasError: (a `ValueError`) it runs on another backend than JAX.
    """
    if importlib.util.find_spec("keras") is None:
        raise MissingExtraError(
            "Keras is not installed", fix="pip install 'ipujax[keras]', which brings keras 3"
        )
    try:
        module = importlib.import_module("keras")
    except ImportError as error:
        raise KerasError(f"Keras cannot be imported: {error}", fix=_SWITCH) from error
    backend = module.backend.backend()
    if backend != "jax":
        raise KerasError(f"Keras runs on {backend}, and virtual IPUs run JAX", fix=_SWITCH)
    hide_package_lines(Path(str(module.__file__)).parent)  # all layer calls pass through its files
    return module


def is_keras_expected() -> bool:
    """Returns whether Keras is imported already or configured to run on JAX."""
    return "keras" in sys.modules or (
        os.environ.get("KERAS_BACKEND") == "jax" and importlib.util.find_spec("keras") is not None
    )
