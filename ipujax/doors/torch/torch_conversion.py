"""Models of PyTorch as functions of JAX; needs the extra `torch`."""

from __future__ import annotations

import importlib

from ipujax.doors.models import Model, check
from ipujax.ground import api_boundary, require_package


@check.guard
@api_boundary
def from_torch(module: object, example_args: object, example_kwargs: object = None) -> Model:
    """Converts a PyTorch module, traced by `torch.export`, to JAX functions.

    Variables have the names of `named_parameters` and `named_buffers`, such as `encoder.0.weight`;
    a shared one has its first name. Memory is shared with PyTorch where possible: if PyTorch trains
    the module further, `variables` change, too. The module's mode decides whether it trains: the
    second result of `apply` has the updated buffers of batch normalization, and dropout draws from
    its key.
    Parameters that no output depends on are not trained, as PyTorch's optimizers skip them.
    64-bit integers and floats have 32 bits in JAX. Shapes are those of the example.

    Args:
      module: a `torch.nn.Module`.
      example_args: the arguments of a call, tensors or arrays in any structure; their values do
        not matter.
      example_kwargs: the keyword arguments of the call; `apply` takes their values by position,
        after the positional ones.

    Returns:
      The converted model. Its parts are the modules that hold operators, by their paths; each
      `poptorch.Block` that begins in it is a stage.

    Raises:
      FrontendError: (a `ValueError`) `torch.export` cannot trace the module, for example because
        control flow depends on values, or operators are missing.
      FrontendTypeError: (a `TypeError`) the argument is no module.
      MissingExtraError: (an `ImportError`) PyTorch is not installed.
    """
    check_installed()
    model = importlib.import_module("ipujax.doors.torch.torch_model")
    return model.convert_torch_module(module, example_args, example_kwargs)


def check_installed() -> None:
    """Checks that PyTorch can be imported.

    Raises:
      MissingExtraError: (an `ImportError`) it is not installed.
    """
    require_package(
        "torch",
        "torch",
        "models of PyTorch need it",
        advice="; for a build without CUDA, torch from PyTorch's own index of CPU wheels first",
    )
