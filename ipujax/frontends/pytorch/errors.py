"""Errors about modules of PyTorch, in the user's terms."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ipujax.doors.graphs import Node, of_module
from ipujax.errors import FrontendError

_TORCH = f"{Path(str(torch.__file__)).parent}{os.sep}"
_OURS = f"{Path(__file__).parents[2]}{os.sep}"


def is_users(file: str) -> bool:
    """Whether a file is neither PyTorch's nor ours."""
    return not file.startswith((_TORCH, _OURS, "<"))


def user_line_of(error: BaseException) -> str | None:
    """The innermost line of the user's among those that an error went through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def untraceable(module: torch.nn.Module, error: Exception) -> FrontendError:
    """The error of a module that `torch.export` cannot trace."""
    name = type(module).__name__
    where = user_line_of(error)
    kind = type(error).__name__
    if _depends_on_values(error):
        return FrontendError(
            f"the control flow or a shape in module {name} depends on the values of tensors, and "
            "an IPU runs static graphs",
            where=where,
            fix="use torch.where, or torch.cond, for a choice between values",
        )
    lines = [line for line in str(error).splitlines() if line.strip()]
    return FrontendError(
        f"torch.export cannot trace module {name}: {kind}: {lines[0] if lines else ''}",
        where=where,
        fix="torch.export.export(module, args) alone shows the same, and PyTorch's explanation",
    )


def scripted(name: str, part: torch.nn.Module, where: str | None = None) -> FrontendError:
    """The error of a module, or a part of one, that is TorchScript."""
    whose = f"module {name!r}" if name else "the module"
    return FrontendError(
        f"{whose} ({type(part).__name__}) is TorchScript, of torch.jit.trace, script or load, "
        "which torch.export cannot trace",
        where=where,
        fix="give the torch.nn.Module that it was made of; weights come from a file by "
        "module.load_state_dict(torch.jit.load(path).state_dict())",
    )


def untraceable_backward(what: str, where: str | None, error: Exception) -> FrontendError:
    """The error of a backward pass of the user's that cannot be traced.

    Args:
      what: whose it is.
      where: the line where it begins, for errors without a line of the user's.
      error: what it raised.
    """
    if _depends_on_values(error):
        reason = "its control flow or a shape depends on the values of tensors"
    else:
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return FrontendError(
        f"the backward pass of {what} cannot be traced: {reason}",
        where=user_line_of(error) or where,
        fix="compute with operators of PyTorch whose results have static shapes",
    )


def line_of(function: Any) -> str | None:
    """Where a function begins."""
    code = getattr(function, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _depends_on_values(error: Exception) -> bool:
    kind = type(error).__name__
    return "DataDependent" in kind or "data-dependent" in str(error)


def depends_on_values(what: str, scope: str, where: str | None) -> FrontendError:
    """The error of an operator whose result has a shape, or is a number, that values decide."""
    module = of_module(scope)
    if what.startswith(("aten.item.", "aten._local_scalar_dense.")):
        return FrontendError(
            f"a number in Python{module} is one that the model computes, and an IPU runs static "
            "graphs",
            where=where,
            fix="keep it a tensor: leave out .item(), .tolist(), int() and float()",
        )
    return FrontendError(
        f"the shape of what {what}{module} gives depends on the values of tensors, and an IPU runs "
        "static graphs",
        where=where,
        fix="compute for all elements, and use torch.where to choose between results",
    )


def missing_operators(missing: Mapping[str, Sequence[Node]]) -> FrontendError:
    """The one error about all operators that are missing."""
    lines = [_one_missing(name, nodes) for name, nodes in sorted(missing.items())]
    return FrontendError(
        f"there is no JAX function for {len(lines)} of the model's operators: {'; '.join(lines)}",
        fix="write these parts with other operators",
    )


def _one_missing(name: str, nodes: Sequence[Node]) -> str:
    scopes = list(dict.fromkeys(node.scope or "the outermost module" for node in nodes))
    where = next((f" ({node.where})" for node in nodes if node.where), "")
    return f"{name} in {', '.join(scopes)}{where}"
