"""Errors about PyTorch modules that point to the user's source lines."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ipujax.doors.graphs import Node, describe_module
from ipujax.ground import FrontendError

_TORCH = f"{Path(str(torch.__file__)).parent}{os.sep}"
_OURS = f"{Path(__file__).parents[2]}{os.sep}"


def is_user_code(file: str) -> bool:
    """Returns whether a file belongs neither to PyTorch nor to ipujax."""
    return not file.startswith((_TORCH, _OURS, "<"))


def user_line_of(error: BaseException) -> str | None:
    """Returns the innermost line of user code in an error's traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_code(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def untraceable_module_error(module: torch.nn.Module, error: Exception) -> FrontendError:
    """Returns the error for a module that `torch.export` cannot trace."""
    name = type(module).__name__
    location = user_line_of(error)
    error_type = type(error).__name__
    if _is_data_dependence(error):
        return FrontendError(
            f"the control flow or a shape in module {name} depends on the values of tensors, and "
            "an IPU runs static graphs",
            where=location,
            fix="use torch.where, or torch.cond, for a choice between values",
        )
    lines = [line for line in str(error).splitlines() if line.strip()]
    return FrontendError(
        f"torch.export cannot trace module {name}: {error_type}: {lines[0] if lines else ''}",
        where=location,
        fix="torch.export.export(module, args) alone shows the same, and PyTorch's explanation",
    )


def torchscript_error(
    name: str, part: torch.nn.Module, location: str | None = None
) -> FrontendError:
    """Returns the error for a module, or a part of one, that is TorchScript."""
    module_text = f"module {name!r}" if name else "the module"
    return FrontendError(
        f"{module_text} ({type(part).__name__}) is TorchScript, of torch.jit.trace, script or "
        "load, which torch.export cannot trace",
        where=location,
        fix="give the torch.nn.Module that it was made of; weights come from a file by "
        "module.load_state_dict(torch.jit.load(path).state_dict())",
    )


def untraceable_backward_error(owner: str, location: str | None, error: Exception) -> FrontendError:
    """Returns the error for a user-written backward pass that cannot be traced.

    Args:
      owner: the hook or function that it belongs to.
      location: the line where it begins, for tracebacks without a line of user code.
      error: the error that it raised.
    """
    if _is_data_dependence(error):
        reason = "its control flow or a shape depends on the values of tensors"
    else:
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return FrontendError(
        f"the backward pass of {owner} cannot be traced: {reason}",
        where=user_line_of(error) or location,
        fix="compute with operators of PyTorch whose results have static shapes",
    )


def first_line_of_function(function: Any) -> str | None:
    """Returns the source line where a function begins; None for built-in functions."""
    code = getattr(function, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _is_data_dependence(error: Exception) -> bool:
    error_type = type(error).__name__
    return "DataDependent" in error_type or "data-dependent" in str(error)


def data_dependence_error(operator_name: str, scope: str, location: str | None) -> FrontendError:
    """Returns the error for an operator whose result shape or number depends on values."""
    module = describe_module(scope)
    if operator_name.startswith(("aten.item.", "aten._local_scalar_dense.")):
        return FrontendError(
            f"a number in Python{module} is computed by the model, and an IPU runs static graphs",
            where=location,
            fix="keep it a tensor: leave out .item(), .tolist(), int() and float()",
        )
    return FrontendError(
        f"the shape of what {operator_name}{module} gives depends on the values of tensors, and an "
        "IPU runs static graphs",
        where=location,
        fix="compute for all elements, and use torch.where to choose between results",
    )


def missing_operators_error(missing: Mapping[str, Sequence[Node]]) -> FrontendError:
    """Returns one error that lists all missing operators with their modules."""
    lines = [_describe_missing_operator(name, nodes) for name, nodes in sorted(missing.items())]
    return FrontendError(
        f"there is no JAX function for {len(lines)} of the model's operators: {'; '.join(lines)}",
        fix="write these parts with other operators",
    )


def _describe_missing_operator(name: str, nodes: Sequence[Node]) -> str:
    scopes = list(dict.fromkeys(node.scope or "the outermost module" for node in nodes))
    location = next((f" ({node.where})" for node in nodes if node.where), "")
    return f"{name} in {', '.join(scopes)}{location}"
