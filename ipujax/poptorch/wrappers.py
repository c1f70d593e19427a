"""The wrappers `trainingModel` and `inferenceModel`, and `load` for saved models."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from ipujax.doors.torch import torchscript_error
from ipujax.ground import count_replica_groups
from ipujax.poptorch.enums import OutputMode
from ipujax.poptorch.executor import PoplarExecutor
from ipujax.poptorch.options import Options
from ipujax.poptorch.options.switches import log_options
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_errors import convert_errors
from ipujax.poptorch.saving import Saved, SavedData, copy_for_editing
from ipujax.poptorch.wrapped_model import has_trainer


@check.guard
def trainingModel(
    model: torch.nn.Module | PoplarExecutor,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """Wraps a module to train it on virtual IPUs.

    Each call is a forward and a backward pass of all micro-batches and a weight update for every
    `gradientAccumulation` of them. The module's own parameters have the trained values whenever
    they are read.

    Where `options.Distributed` says that there are several processes, all train together: each
    compiles and calls the model as often as the others, with data of its own, and gets the outputs
    of its own. All begin with the weights and the optimizer's state of process 0.

    Args:
      model: a module whose `forward` computes the loss.
      options: frozen from now on; changing them needs a copy.
      optimizer: an optimizer of torch or `poptorch.optim`; by default SGD with learning rate 0.01.

    Raises:
      PopTorchError: (a `ValueError`) the model is wrapped already, or the optimizer is not known.
    """
    module, own_options = _unwrap_module(model), _freeze_options(options, OutputMode.Final)
    if own_options.Distributed.numProcesses > 1 and count_replica_groups() == 1:
        raise check.value_error(
            f"options.Distributed names {own_options.Distributed.numProcesses} processes, but this "
            "one has not met any others",
            "start them by ipurun, or call ipujax.popdist.init() under Slurm or mpirun; or call "
            "options.Distributed.disable()",
        )
    if has_trainer(module):
        raise check.value_error(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on "
            "the model to unwrap before wrapping again.",
        )
    return PoplarExecutor(
        module,
        own_options,
        optimizer or torch.optim.SGD(module.parameters(), lr=0.01),
    )


@check.guard
def inferenceModel(
    model: torch.nn.Module | PoplarExecutor, options: Options | None = None
) -> PoplarExecutor:
    """Wraps a module to run it on virtual IPUs, in the mode it has when it is compiled.

    Where there are several processes, each runs it without the others.

    Args:
      model: any module.
      options: frozen from now on; changing them needs a copy.

    Raises:
      PopTorchError: (a `ValueError`) options that only training has.
    """
    module, own_options = _unwrap_module(model), _freeze_options(options, OutputMode.All)
    accumulation = own_options.Training.gradient_accumulation
    if accumulation != 1:
        raise check.value_error(
            "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its "
            "default value (1) when running a poptorch.inferenceModel(). Use "
            "poptorch.Options().deviceIterations to process a sufficient number of batches each "
            f"run for pipelined execution instead. It is {accumulation}",
            "leave gradientAccumulation away",
        )
    return PoplarExecutor(module, own_options)


@check.guard
def load(
    filename: str | os.PathLike[str],
    edit_opts_fn: Callable[[Options], object] | None = None,
    *,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """Loads a model that `compileAndExport` or `save` wrote, and compiles it again.

    The file is a pickle, as the original's: reading it runs whatever code it names, with your
    rights. For a file that you do not trust, give the `model` yourself: then nothing that the file
    names is run, only weights, arguments and the state of random numbers are read from it.

    Args:
      filename: the file.
      edit_opts_fn: changes the options before the model is compiled.
      model: a module like the one that was saved, which gets the weights of the file; the options
        are then new ones, for `edit_opts_fn` to change.
      optimizer: an optimizer for `model`; its state begins anew.

    Raises:
      PopTorchFileError: (an `OSError`) no file, or one that holds no model of PopTorch.
      PopTorchError: (a `ValueError`) the file holds no module.
    """
    if model is not None:
        return _load_into_user_module(model, optimizer, filename, edit_opts_fn)
    if optimizer is not None:
        raise check.value_error(
            "load was given an optimizer without a model", "give the model as well"
        )
    saved = Saved.read_model_file(filename)
    if saved.module is None:
        wrapper = "trainingModel" if saved.training else "inferenceModel"
        raise check.value_error(
            f"{os.fspath(filename)} holds no module: it was saved with export_model=False",
            f"make the model with poptorch.{wrapper}, then call its loadExecutable(filename)",
        )
    saved.module.training = saved.mode
    options = copy_for_editing(saved.options, edit_opts_fn)
    if saved.training:
        executor = trainingModel(saved.module, options, saved.optimizer)
    else:
        executor = inferenceModel(saved.module, options)
    executor.loadExecutable(filename)
    if saved.rng_state is not None:
        executor.rng_state = saved.rng_state
    return executor


def _unwrap_module(model: torch.nn.Module | PoplarExecutor) -> torch.nn.Module:
    if isinstance(model, PoplarExecutor):
        return model.model
    module = check.require_instance(model, torch.nn.Module, "the model", "a torch.nn.Module")
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            with convert_errors():
                raise torchscript_error(name, part)
    return module


def _freeze_options(options: Options | None, default_mode: OutputMode) -> Options:
    """Freezes the options, and returns a frozen copy with a wrapper's default output mode."""
    user_options = Options() if options is None else options
    check.require_instance(user_options, Options, "the options", "poptorch.Options")
    user_options._freeze()  # pyright: ignore[reportPrivateUsage]
    own_options = user_options.clone()
    if own_options.defaultOutputMode():
        own_options.outputMode(default_mode)
    own_options._freeze()  # pyright: ignore[reportPrivateUsage]
    log_options(own_options.toDict())
    return own_options


def _load_into_user_module(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None,
    filename: str | os.PathLike[str],
    edit_opts_fn: Callable[[Options], object] | None,
) -> PoplarExecutor:
    """Loads the weights of a file into the user's module; runs no code of the file."""
    check.require_instance(model, torch.nn.Module, "model")
    saved = SavedData.read_model_data(filename)
    if not saved.weights and model.state_dict():
        raise check.value_error(
            f"{os.fspath(filename)} holds no weights: it was saved with export_model=False",
            "wrap the model, then call its loadExecutable(filename)",
        )
    try:
        weight_names = model.state_dict().keys()
        model.load_state_dict(
            {name: saved.weights[name] for name in weight_names if name in saved.weights}
        )
    except RuntimeError as error:
        raise check.value_error(
            f"the weights of {os.fspath(filename)} do not fit the model: {error}",
            "give a module like the one that was saved",
        ) from error
    model.training = saved.mode
    options = copy_for_editing(Options(), edit_opts_fn)
    if saved.training:
        executor = trainingModel(model, options, optimizer)
    else:
        executor = inferenceModel(model, options)
    executor.loadExecutable(filename)
    if saved.rng_state is not None:
        executor.rng_state = saved.rng_state
    return executor
