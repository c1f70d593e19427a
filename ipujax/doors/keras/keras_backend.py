"""Access to Keras where it is installed and runs on JAX."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import types
from pathlib import Path

from ipujax.ground import KerasError, hide_package_lines, require_package
from ipujax.system import get_logger

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
    require_package("keras", "keras", "models of Keras need it", advice=", which brings keras 3")
    choose_jax_backend()
    try:
        module = importlib.import_module("keras")
    except ImportError as error:
        raise KerasError(f"Keras cannot be imported: {error}", fix=_SWITCH) from error
    backend = module.backend.backend()
    if backend != "jax":
        raise KerasError(f"Keras runs on {backend}, and virtual IPUs run JAX", fix=_SWITCH)
    hide_package_lines(Path(str(module.__file__)).parent)  # all layer calls pass through its files
    return module


def choose_jax_backend() -> bool:
    """Has Keras run on JAX where nobody has chosen its backend yet; logs that.

    A choice is the variable KERAS_BACKEND, or the backend in Keras's own file of settings; but not
    TensorFlow where it is not installed: Keras writes that name when it is first imported.

    Returns:
      Whether Keras is imported already, or will run on JAX.
    """
    if "keras" in sys.modules:
        return True
    if importlib.util.find_spec("keras") is None:
        return False
    chosen = os.environ.get("KERAS_BACKEND") or _backend_in_settings()
    if chosen is None:
        os.environ["KERAS_BACKEND"] = chosen = "jax"
        get_logger().info("Keras runs on JAX: nothing else was chosen, so KERAS_BACKEND=jax is set")
    return chosen == "jax"


def _backend_in_settings() -> str | None:
    """Returns the backend that Keras's file of settings names, if it is one to choose."""
    folder = os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser()
    try:
        settings = json.loads((Path(folder) / "keras.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    backend = settings.get("backend") if isinstance(settings, dict) else None
    if backend == "tensorflow" and importlib.util.find_spec("tensorflow") is None:
        return None
    return backend if isinstance(backend, str) else None
