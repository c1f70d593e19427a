"""The export of a trained model as a saved executable, as the original's SavedModel."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.estimator_mode import EstimatorMode
from ipujax.doors.estimators.estimator_spec import ModeKeys
from ipujax.doors.estimators.model_fn import split_element_arguments
from ipujax.driver import compile
from ipujax.ground import files
from ipujax.training import TrainState, Tree

_ASSETS = "assets.extra"


def call_receiver_functions(functions: Any, argument_name: str) -> dict[str, Tree]:
    """Returns the shapes of the arguments of programs, from functions by mode.

    Raises:
      EstimatorError: (a `ValueError`) an entry that is None.
      EstimatorTypeError: (a `TypeError`) a value that is no dict of functions.
    """
    check.require_instance(functions, dict, argument_name)
    structs: dict[str, Tree] = {}
    for mode, function in functions.items():
        if function is None:
            raise check.value_error(
                f"{argument_name} is None for mode {mode!r}",
                "give a function without arguments that returns jax.ShapeDtypeStructs",
            )
        structs[mode] = check.require_function(
            function, f"the function of {argument_name} for mode {mode!r}"
        )()
    return structs


def make_zero_element(structs: Tree) -> Tree:
    """Returns an element of zeros, of the given shapes."""
    return jax.tree.map(lambda struct: np.zeros(struct.shape, struct.dtype), structs)


def write_saved_models(
    base: files.StrPath,
    programs: Mapping[str, tuple[EstimatorMode, TrainState, Tree]],
    assets: Mapping[str, str] | None,
    as_text: bool,
) -> str:
    """Compiles and saves programs, the first in a new folder and others in folders of it.

    Args:
      base: the folder in which the new folder is made; its name is the time in seconds.
      programs: the programs by name: a mode, the state whose variables become constants, and the
        shapes of the element.
      assets: paths in the folder `assets.extra` to files that are copied there.
      as_text: write the Programs' texts beside.

    Returns:
      The new folder.
    """
    executables = {
        name: _compile_serving_program(
            name, mode.build_serving_function(state), mode.device_loop_options["device"], structs
        )
        for name, (mode, state, structs) in programs.items()
    }
    path = _find_new_folder_name(os.fspath(check.require_path(base, "export_dir_base")))
    with files.create_complete_folder(path) as folder:
        for number, (name, executable) in enumerate(executables.items()):
            program_folder = os.path.join(folder, name) if number else folder
            os.makedirs(program_folder, exist_ok=True)
            executable.save(os.path.join(program_folder, f"{name}.ipujax"))
            if as_text:
                files.write_text(os.path.join(program_folder, f"{name}.txt"), executable.as_text())
        for target, source in (assets or {}).items():
            asset_path = os.path.join(folder, _ASSETS, target)
            os.makedirs(os.path.dirname(asset_path), exist_ok=True)
            shutil.copyfile(source, asset_path)
    return path


def _compile_serving_program(
    mode: str, function: Callable[..., Tree], device: str, structs: Tree
) -> Any:
    args, keyword_arguments = split_element_arguments(structs)
    try:
        return (
            compile(function, device=device, name="serving")
            .lower(*args, **keyword_arguments)
            .compile()
        )
    except Exception as error:
        if mode == ModeKeys.PREDICT or len(args) > 1:
            raise
        raise check.value_error(
            f"the receiver function of mode {mode!r} gives features and no labels, and the model "
            f"fails without them: {type(error).__name__}: {error}",
            "return (features, labels) from it, or have the model do without labels",
        ) from error


def _find_new_folder_name(base: str) -> str:
    """Returns a folder name made of the time, later by some seconds if there is one."""
    os.makedirs(base, exist_ok=True)
    seconds = int(time.time())
    while os.path.exists(path := os.path.join(base, str(seconds))):
        seconds += 1
    return path
