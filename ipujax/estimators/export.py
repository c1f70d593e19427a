"""A trained model as a saved executable in a folder, as the original's SavedModel."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ipujax.driver.compiler import compile
from ipujax.estimators.checks import check
from ipujax.estimators.mode import Mode
from ipujax.estimators.model_fn import body_arguments
from ipujax.estimators.spec import ModeKeys
from ipujax.host import files
from ipujax.training import TrainState
from ipujax.training.state import Tree

_ASSETS = "assets.extra"


def receivers_of(functions: Any, what: str) -> dict[str, Tree]:
    """What a map from modes to functions says of the arguments that programs take.

    Raises:
      EstimatorError: (a `ValueError`) an entry that is None.
      EstimatorTypeError: (a `TypeError`) no dict of functions.
    """
    check.instance(functions, dict, what)
    structs: dict[str, Tree] = {}
    for mode, function in functions.items():
        if function is None:
            raise check.refuse(
                f"{what} is None for mode {mode!r}",
                "give a function without arguments that returns jax.ShapeDtypeStructs",
            )
        structs[mode] = check.function(function, f"the function of {what} for mode {mode!r}")()
    return structs


def zeros(structs: Tree) -> Tree:
    """An element of these shapes."""
    return jax.tree.map(lambda struct: np.zeros(struct.shape, struct.dtype), structs)


def write(
    base: files.StrPath,
    programs: Mapping[str, tuple[Mode, TrainState, Tree]],
    assets: Mapping[str, str] | None,
    as_text: bool,
) -> str:
    """Compiles and saves programs, the first in a new folder and others in folders of it.

    Args:
      base: where the folder is made; its name is the time in seconds.
      programs: by their names: a mode, the state whose variables become constants, and the shapes
        of the element.
      assets: paths in the folder `assets.extra` to files that are copied there.
      as_text: write the Programs' texts beside.

    Returns:
      The folder.
    """
    compiled = {
        name: _compile(name, mode.function(state), mode.options["device"], structs)
        for name, (mode, state, structs) in programs.items()
    }
    path = _new_name(os.fspath(check.path(base, "export_dir_base")))
    with files.new_folder(path) as folder:
        for number, (name, executable) in enumerate(compiled.items()):
            place = os.path.join(folder, name) if number else folder
            os.makedirs(place, exist_ok=True)
            executable.save(os.path.join(place, f"{name}.ipujax"))
            if as_text:
                files.write_text(os.path.join(place, f"{name}.txt"), executable.as_text())
        for target, source in (assets or {}).items():
            copied = os.path.join(folder, _ASSETS, target)
            os.makedirs(os.path.dirname(copied), exist_ok=True)
            shutil.copyfile(source, copied)
    return path


def _compile(mode: str, function: Callable[..., Tree], device: str, structs: Tree) -> Any:
    args, named = body_arguments(structs)
    try:
        return compile(function, device=device, name="serving").lower(*args, **named).compile()
    except Exception as error:
        if mode == ModeKeys.PREDICT or len(args) > 1:
            raise
        raise check.refuse(
            f"the receiver function of mode {mode!r} gives features and no labels, and the model "
            f"fails without them: {type(error).__name__}: {error}",
            "return (features, labels) from it, or have the model do without labels",
        ) from error


def _new_name(base: str) -> str:
    """A folder named by the time, later by some seconds if there is one."""
    os.makedirs(base, exist_ok=True)
    now = int(time.time())
    while os.path.exists(path := os.path.join(base, str(now))):
        now += 1
    return path
