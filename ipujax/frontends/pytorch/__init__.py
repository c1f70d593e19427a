"""Models of PyTorch as functions of JAX; needs the extra `torch`."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ipujax.checks.lines import api_boundary
from ipujax.errors import MissingExtraError
from ipujax.frontends.checks import check
from ipujax.frontends.model import Model


@check.guard
@api_boundary
def from_torch(module: Any, example_args: Any, example_kwargs: Any = None) -> Model:
    """A module of PyTorch as functions of JAX, traced by `torch.export`.

    Variables have the names that `named_parameters` and `named_buffers` give, such as
    `encoder.0.weight`; one that several modules share has the first of its names. Where PyTorch's
    memory can be used as it is, nothing is copied: a module that is trained further with PyTorch
    changes `variables`, too. The module's mode decides whether it trains: what batch normalization
    leaves in its buffers is in the second result of `apply`, and dropout draws from its key.
    Parameters that no output depends on are not trained, as PyTorch's optimizers skip them.
    Integers and floats of 64 bits have 32 in JAX. Shapes are those of the example.

    Args:
      module: a `torch.nn.Module`.
      example_args: the arguments of a call, tensors or arrays in any structure; their values do
        not matter.
      example_kwargs: the same, by keyword; `apply` takes their values by position, after the
        others.

    Returns:
      The model. Its parts are the modules that hold operators, by their paths; each
      `poptorch.Block` that begins in it is a stage.

    Raises:
      FrontendError: (a `ValueError`) what `torch.export` cannot trace, such as control flow that
        depends on values, or operators that are missing.
      FrontendTypeError: (a `TypeError`) no module.
      MissingExtraError: (an `ImportError`) PyTorch is not installed.
    """
    check_installed()
    model = importlib.import_module("ipujax.frontends.pytorch.model")
    return model.model_of(module, example_args, example_kwargs)


def check_installed() -> None:
    """Makes sure that PyTorch can be imported.

    Raises:
      MissingExtraError: (an `ImportError`) it is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(
            "PyTorch is not installed",
            fix="pip install 'ipujax[torch]'; for a build without CUDA, torch from PyTorch's own "
            "index of CPU wheels first",
        )
