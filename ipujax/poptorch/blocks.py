"""Blocks: parts of a model that belong together on an IPU.

They say something while a wrapper, or `frontends.from_torch`, traces the model; otherwise the code
in them runs as it is.
"""

# PyTorch has no public way to see a module's hooks.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ipujax.frontends.pytorch.trace import BLOCK, Trace, current_trace
from ipujax.poptorch.checks import check


class OpenBlock(NamedTuple):
    """What operators are marked with.

    Attributes:
      user_id: the block's name.
      ipu_id: the IPU that it asks for.
    """

    user_id: str
    ipu_id: int | None


class _Walk:
    """One walk through a model.

    Attributes:
      next_number: of the next block without a name.
      names: of what has begun a block without a name, by `id`.
    """

    def __init__(self) -> None:
        self.next_number = 0
        self.names: dict[int, str] = {}

    def number(self) -> str:
        """The name of a block that has none."""
        self.next_number += 1
        return str(self.next_number - 1)

    def name_of(self, owner: object) -> str:
        """The name of all blocks without a name that an object begins."""
        if id(owner) not in self.names:
            self.names[id(owner)] = self.number()
        return self.names[id(owner)]


def _walk(trace: Trace) -> _Walk:
    return trace.notes.setdefault("blocks", _Walk())


@check.guard
class Block(torch.nn.Module):
    """A scope whose operators are a block: `with poptorch.Block("encoder", ipu_id=1):`.

    Blocks of the same name are one. After the scope no block is open, not even the one around it:
    operators must be in another, or it is an error when a wrapper is compiled.

    Args:
      user_id: the block's name; None for a number, counted from 0 in each forward pass.
      ipu_id: the IPU of each replica that it runs on; None leaves that to the strategy.

    Raises:
      Error: a name that is no string, or an IPU that is no natural number.
    """

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None):
        super().__init__()
        self._user_id, self._ipu_id = _checked(user_id, ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Has blocks without a name be counted from 0 again."""
        if (trace := current_trace()) is not None:
            _walk(trace).next_number = 0

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """Begins a block, which lasts until the next one or the end of the forward pass."""
        user_id, ipu_id = _checked(user_id, ipu_id)
        if (trace := current_trace()) is not None:
            name = _walk(trace).number() if user_id is None else user_id
            trace.mark(**{BLOCK: OpenBlock(name, ipu_id)})

    def __enter__(self) -> None:
        Block.start(self._user_id, self._ipu_id)

    def __exit__(self, *_: Any) -> None:
        if (trace := current_trace()) is not None:
            trace.mark(**{BLOCK: None})


class _Beginner:
    """Begins a block each time that a layer is called."""

    def __init__(self, user_id: str | None, ipu_id: int | None):
        self._user_id, self._ipu_id = _checked(user_id, ipu_id)

    def begin(self) -> None:
        trace = current_trace()
        name = self._user_id
        if trace is not None and name is None:
            name = _walk(trace).name_of(self)
        Block.start(name, self._ipu_id)


class _BlockHook(_Beginner):
    """Begins a block in front of a module."""

    def __call__(self, module: torch.nn.Module, args: Any) -> None:
        del module, args
        self.begin()

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self._user_id}, ipu_id={self._ipu_id})"


class LegacyBeginBlockFn(torch.nn.Module):
    """A function, in front of which a block begins; see `BeginBlock`."""

    def __init__(
        self,
        layer_to_call: Callable[..., Any],
        user_id: str | None = None,
        ipu_id: int | None = None,
    ):
        super().__init__()
        self._beginner = _Beginner(user_id, ipu_id)
        self._user_id, self._ipu_id = user_id, ipu_id
        self._layer_to_call = layer_to_call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Begins the block, and calls the function."""
        self._beginner.begin()
        return self._layer_to_call(*args, **kwargs)


@check.guard
def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    """Has a block begin whenever a module is called.

    It lasts until the next block begins or ends, or the forward pass ends: what the model does
    after the module is in it, too.

    Args:
      layer_to_call: the module, which is changed; or a function.
      user_id: the block's name; None for a number, counted from 0 in each forward pass.
      ipu_id: the IPU of each replica that it runs on; None leaves that to the strategy.

    Returns:
      The module itself; of a function, a module that calls it.

    Raises:
      Error: the module has a block already; what is neither a module nor a function; a name that is
        no string, or an IPU that is no natural number.
    """
    if not isinstance(layer_to_call, torch.nn.Module):
        if callable(layer_to_call):
            return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)
        raise check.refuse(
            f"module is not an instance of torch.nn.Module or function: {layer_to_call!r}"
        )
    hooks = layer_to_call._forward_pre_hooks
    if any(isinstance(hook, _BlockHook) for hook in hooks.values()):
        raise check.refuse(
            "module has already been assigned to a block: "
            f"{next(hook for hook in hooks.values() if isinstance(hook, _BlockHook))!r}",
            "call poptorch.removeBlocks(model) first to assign it again",
        )
    layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
    return layer_to_call


@check.guard
def BlockFunction(
    user_id: str | None = None, ipu_id: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that is a block whenever it is called.

    Args:
      user_id: as `Block` has it.
      ipu_id: the same.
    """
    _checked(user_id, ipu_id)

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return call

    return decorated


@check.guard
def removeBlocks(module: torch.nn.Module) -> None:
    """Takes back what `BeginBlock` has done to a module and all modules in it."""
    check.instance(module, torch.nn.Module, "the model of removeBlocks", "a torch.nn.Module")
    for inner in module.modules():
        hooks = inner._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if isinstance(hook, _BlockHook)]:
            del hooks[key]


@check.guard
def module_repr(module: torch.nn.Module) -> str:
    """A module's text with the blocks that begin in front of its modules."""
    check.instance(module, torch.nn.Module, "the model of module_repr", "a torch.nn.Module")
    return _described(module)


def _described(module: torch.nn.Module) -> str:
    hooks = [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, _BlockHook)]
    children = [
        f"({name}): {_described(child)}".replace("\n", "\n  ")
        for name, child in module.named_children()
    ]
    extra = [line for line in module.extra_repr().split("\n") if line]
    name = module._get_name()
    if children:
        inner = "\n  ".join([*extra, *children])
        text = f"{name}(\n  {inner}\n)"
    else:
        text = f"{name}({', '.join(extra)})"
    return " ".join([*map(repr, hooks), text])


def _checked(user_id: Any, ipu_id: Any) -> tuple[str | None, int | None]:
    """The name and the IPU of a block; a number does for a name."""
    if isinstance(user_id, int):
        user_id = str(check.integer(user_id, "the user_id of a block", at_least=0))
    name: str | None = check.text(user_id, "the user_id of a block", optional=True)
    ipu = None if ipu_id is None else check.integer(ipu_id, "the ipu_id of a block", at_least=0)
    return name, ipu
