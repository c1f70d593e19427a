"""The device "ipu" of the tensors inside of `forward`, which programs branch on."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_IPU = torch.device("ipu", 0)
_IPU_NAME = re.compile(r"ipu(:\d+)?")
_TRACED_ON = torch.device("cpu")

# PyTorch calls the getter of a tensor's attribute as a function.
_ATTRIBUTES: Mapping[str, Any] = vars(torch.Tensor.__base__)
_ANSWERS: dict[Any, object] = {
    _ATTRIBUTES["device"].__get__: _IPU,
    _ATTRIBUTES["is_ipu"].__get__: True,
    _ATTRIBUTES["is_cpu"].__get__: False,
    torch.Tensor.get_device: _IPU.index,
}
_PARSE_ARGUMENTS_OF_TO: Any = torch._C._nn._parse_to  # pyright: ignore
_TAKE_NAMES = frozenset[Any]({torch.Tensor.to, _PARSE_ARGUMENTS_OF_TO})
"""Functions that take the name of a device by position."""


class _RunningCode(threading.local):
    is_users = False  # what runs is `forward`, and no function of PyTorch that the mode calls


_running_code = _RunningCode()


def _is_asked_by_user() -> bool:
    """Returns whether the code that called the caller is none of PyTorch's.

    PyTorch's own, such as `torch.utils.checkpoint`, has to know the device that there is.
    """
    asker: str = sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]
    return _running_code.is_users and asker.partition(".")[0] != torch.__name__


@contextlib.contextmanager
def tensors_on_ipu() -> Generator[None]:
    """Has tensors say that they are on an IPU, and functions of PyTorch accept that device.

    They are traced on the CPU, and say so to PyTorch.
    """
    device = vars(FakeTensor)["device"]  # a property of Python's, so the mode does not see it
    answer = lambda fake: _IPU if _is_asked_by_user() else device.fget(fake)  # noqa: E731
    FakeTensor.device = property(answer, device.fset)  # pyright: ignore[reportAttributeAccessIssue]
    _running_code.is_users = True
    try:
        with _IpuDevice():
            yield
    finally:
        _running_code.is_users = False
        FakeTensor.device = device


class _IpuDevice(TorchFunctionMode):
    """A mode that answers what a tensor says of its device, and else calls with the CPU instead."""

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Calls a function of PyTorch, or answers in its place."""
        if func in _ANSWERS and _is_asked_by_user():
            return _ANSWERS[func]
        arguments, keywords = list(args), dict(kwargs or {})
        if func is not torch.device:
            arguments, keywords = pytree.tree_map(_replace_ipu, (arguments, keywords))
            if _is_ipu_name(keywords.get("device")):
                keywords["device"] = _TRACED_ON
            if func in _TAKE_NAMES:
                arguments = [_TRACED_ON if _is_ipu_name(x) else x for x in arguments]
        _running_code.is_users = False
        try:
            return func(*arguments, **keywords)
        finally:
            _running_code.is_users = True


def _replace_ipu(leaf: object) -> object:
    return _TRACED_ON if isinstance(leaf, torch.device) and leaf.type == _IPU.type else leaf


def _is_ipu_name(value: object) -> bool:
    return isinstance(value, str) and _IPU_NAME.fullmatch(value) is not None
