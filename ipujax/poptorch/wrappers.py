"""`trainingModel` and `inferenceModel`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ipujax.distribution.join import instance_count
from ipujax.frontends.pytorch.errors import scripted
from ipujax.poptorch.checks import check
from ipujax.poptorch.enums import OutputMode
from ipujax.poptorch.errors import as_poptorch
from ipujax.poptorch.executor import PoplarExecutor
from ipujax.poptorch.held import is_trained
from ipujax.poptorch.options import Options
from ipujax.poptorch.options.switches import log_options
from ipujax.poptorch.saving import Saved, SavedData, editable


@check.guard
def trainingModel(
    model: torch.nn.Module | PoplarExecutor,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """A module that is trained on virtual IPUs.

    Each call is a forward and a backward pass of all micro-batches and a weight update for every
    `gradientAccumulation` of them. The module's own parameters have the trained values whenever
    they are read.

    Where `options.Distributed` says that there are several processes, all train together: each
    compiles and calls the model as often as the others, with data of its own, and gets the outputs
    of its own. All begin with the weights and the optimizer's state of process 0.

    Args:
      model: a module whose `forward` computes the loss.
      options: frozen from now on; changing them needs a copy.
      optimizer: of torch or `poptorch.optim`; by default SGD with a learning rate of 0.01.

    Raises:
      PopTorchError: (a `ValueError`) the model is wrapped already, or the optimizer is not known.
    """
    module, own = _module_of(model), _frozen(options, OutputMode.Final)
    if own.Distributed.numProcesses > 1 and instance_count() == 1:
        raise check.refuse(
            f"options.Distributed names {own.Distributed.numProcesses} processes, but this one has "
            "not met any others",
            "start them by ipurun, or call ipujax.popdist.init() under Slurm or mpirun; or call "
            "options.Distributed.disable()",
        )
    if is_trained(module):
        raise check.refuse(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on "
            "the model to unwrap before wrapping again.",
        )
    return PoplarExecutor(
        module,
        own,
        optimizer or torch.optim.SGD(module.parameters(), lr=0.01),
    )


@check.guard
def inferenceModel(
    model: torch.nn.Module | PoplarExecutor, options: Options | None = None
) -> PoplarExecutor:
    """A module that is run on virtual IPUs, in the mode that it is in when it is compiled.

    Where there are several processes, each runs it without the others.

    Args:
      model: any module.
      options: frozen from now on; changing them needs a copy.

    Raises:
      PopTorchError: (a `ValueError`) options that only training has.
    """
    module, own = _module_of(model), _frozen(options, OutputMode.All)
    accumulation = own.Training.gradient_accumulation
    if accumulation != 1:
        raise check.refuse(
            "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its "
            "default value (1) when running a poptorch.inferenceModel(). Use "
            "poptorch.Options().deviceIterations to process a sufficient number of batches each "
            f"run for pipelined execution instead. It is {accumulation}",
            "leave gradientAccumulation away",
        )
    return PoplarExecutor(module, own)


@check.guard
def load(
    filename: str | os.PathLike[str],
    edit_opts_fn: Callable[[Options], Any] | None = None,
    *,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """A model that `compileAndExport` or `save` wrote, compiled again.

    The file is a pickle, as the original's: reading it runs whatever code it names, with your
    rights. For a file that you do not trust, give the `model` yourself: then nothing that the file
    names is run, only weights, arguments and the state of random numbers are read from it.

    Args:
      filename: the file.
      edit_opts_fn: changes the options before the model is compiled.
      model: a module like the one that was saved, which gets the weights of the file; the options
        are then new ones, for `edit_opts_fn` to change.
      optimizer: with `model`, what trains it; its state begins anew.

    Raises:
      PopTorchFileError: (an `OSError`) no file, or one that holds no model of PopTorch.
      PopTorchError: (a `ValueError`) the file holds no module.
    """
    if model is not None:
        return _load_into(model, optimizer, filename, edit_opts_fn)
    if optimizer is not None:
        raise check.refuse("load was given an optimizer without a model", "give the model as well")
    saved = Saved.read(filename)
    if saved.module is None:
        wrapper = "trainingModel" if saved.training else "inferenceModel"
        raise check.refuse(
            f"{os.fspath(filename)} holds no module: it was saved with export_model=False",
            f"make the model with poptorch.{wrapper}, then call its loadExecutable(filename)",
        )
    saved.module.training = saved.mode
    options = editable(saved.options, edit_opts_fn)
    if saved.training:
        executor = trainingModel(saved.module, options, saved.optimizer)
    else:
        executor = inferenceModel(saved.module, options)
    executor.loadExecutable(filename)
    if saved.rng_state is not None:
        executor.rng_state = saved.rng_state
    return executor


def _module_of(model: torch.nn.Module | PoplarExecutor) -> torch.nn.Module:
    if isinstance(model, PoplarExecutor):
        return model.model
    module = check.instance(model, torch.nn.Module, "the model", "a torch.nn.Module")
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            with as_poptorch():
                raise scripted(name, part)
    return module


def _frozen(options: Options | None, usual: OutputMode) -> Options:
    """The options of one wrapper, which nobody can change, with its own usual output mode."""
    given = Options() if options is None else options
    check.instance(given, Options, "the options", "poptorch.Options")
    given._freeze()  # pyright: ignore[reportPrivateUsage]
    own = given.clone()
    if own.defaultOutputMode():
        own.outputMode(usual)
    own._freeze()  # pyright: ignore[reportPrivateUsage]
    log_options(own.toDict())
    return own


def _load_into(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None,
    filename: str | os.PathLike[str],
    edit_opts_fn: Callable[[Options], Any] | None,
) -> PoplarExecutor:
    """A module of the user's with the weights of a file, compiled; nothing of the file runs."""
    check.instance(model, torch.nn.Module, "model")
    saved = SavedData.read(filename)
    if not saved.weights and model.state_dict():
        raise check.refuse(
            f"{os.fspath(filename)} holds no weights: it was saved with export_model=False",
            "wrap the model, then call its loadExecutable(filename)",
        )
    try:
        kept = model.state_dict().keys()
        model.load_state_dict({name: saved.weights[name] for name in kept if name in saved.weights})
    except RuntimeError as error:
        raise check.refuse(
            f"the weights of {os.fspath(filename)} do not fit the model: {error}",
            "give a module like the one that was saved",
        ) from error
    model.training = saved.mode
    options = editable(Options(), edit_opts_fn)
    if saved.training:
        executor = trainingModel(model, options, optimizer)
    else:
        executor = inferenceModel(model, options)
    executor.loadExecutable(filename)
    if saved.rng_state is not None:
        executor.rng_state = saved.rng_state
    return executor
