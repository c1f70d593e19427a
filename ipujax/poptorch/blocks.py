"""The scopes `Block` and `BeginBlock`, which mark the parts of a model that share an IPU.

They mark operators while a wrapper, or `frontends.from_torch`, traces the model; otherwise they do
nothing.
"""

# PyTorch has no public way to see a module's hooks.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ipujax.doors.torch import BLOCK, Trace, current_trace
from ipujax.ground import PyTree
from ipujax.poptorch.poptorch_checks import check


class OpenBlock(NamedTuple):
    """The block that operators are marked with.

    Attributes:
      user_id: the block's name.
      ipu_id: the IPU that the block asks for.
    """

    user_id: str
    ipu_id: int | None


class _BlockNames:
    """The names that blocks without a name get in one forward pass.

    Attributes:
      next_number: the number that the next block without a name gets.
      names: the names of objects that begin blocks without a name, by `id` of the object.
    """

    def __init__(self) -> None:
        self.next_number = 0
        self.names: dict[int, str] = {}

    def next_block_name(self) -> str:
        """Returns the name of the next block without a name: a number."""
        self.next_number += 1
        return str(self.next_number - 1)

    def block_name_of_owner(self, owner: object) -> str:
        """Returns the name of all unnamed blocks that one object begins."""
        if id(owner) not in self.names:
            self.names[id(owner)] = self.next_block_name()
        return self.names[id(owner)]


def _block_names_of_trace(trace: Trace) -> _BlockNames:
    return trace.notes.setdefault("blocks", _BlockNames())


@check.guard
class Block(torch.nn.Module):
    """A scope whose operators form a block: `with poptorch.Block("encoder", ipu_id=1):`.

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
        self._user_id, self._ipu_id = _check_block_arguments(user_id, ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Restarts the numbering of blocks without a name at 0."""
        if (trace := current_trace()) is not None:
            _block_names_of_trace(trace).next_number = 0

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """Begins a block, which lasts until the next one or the end of the forward pass."""
        user_id, ipu_id = _check_block_arguments(user_id, ipu_id)
        if (trace := current_trace()) is not None:
            name = _block_names_of_trace(trace).next_block_name() if user_id is None else user_id
            trace.mark(**{BLOCK: OpenBlock(name, ipu_id)})

    def __enter__(self) -> None:
        Block.start(self._user_id, self._ipu_id)

    def __exit__(self, *_: object) -> None:
        if (trace := current_trace()) is not None:
            trace.mark(**{BLOCK: None})


class _BlockStarter:
    """A starter of a block for each call of a layer."""

    def __init__(self, user_id: str | None, ipu_id: int | None):
        self._user_id, self._ipu_id = _check_block_arguments(user_id, ipu_id)

    def begin_block(self) -> None:
        trace = current_trace()
        name = self._user_id
        if trace is not None and name is None:
            name = _block_names_of_trace(trace).block_name_of_owner(self)
        Block.start(name, self._ipu_id)


class _BlockHook(_BlockStarter):
    """A forward pre-hook that begins a block before a module runs."""

    def __call__(self, module: torch.nn.Module, args: object) -> None:
        del module, args
        self.begin_block()

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self._user_id}, ipu_id={self._ipu_id})"


class LegacyBeginBlockFn(torch.nn.Module):
    """A module that begins a block and then calls a function; see `BeginBlock`."""

    def __init__(
        self,
        layer_to_call: Callable[..., object],
        user_id: str | None = None,
        ipu_id: int | None = None,
    ):
        super().__init__()
        self._beginner = _BlockStarter(user_id, ipu_id)
        self._user_id, self._ipu_id = user_id, ipu_id
        self._layer_to_call = layer_to_call

    def forward(self, *args: object, **kwargs: object) -> PyTree:
        """Begins the block, and calls the function."""
        self._beginner.begin_block()
        return self._layer_to_call(*args, **kwargs)


@check.guard
def BeginBlock(layer_to_call: object, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    """Makes a block begin whenever a module is called.

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
        raise check.value_error(
            f"module is not an instance of torch.nn.Module or function: {layer_to_call!r}"
        )
    hooks = layer_to_call._forward_pre_hooks
    if any(isinstance(hook, _BlockHook) for hook in hooks.values()):
        raise check.value_error(
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
    """Decorates a function so that each of its calls is a block.

    Args:
      user_id: the block's name, as in `Block`.
      ipu_id: the block's IPU, as in `Block`.
    """
    _check_block_arguments(user_id, ipu_id)

    def decorate_as_block(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call_in_block(*args: object, **kwargs: object) -> PyTree:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return call_in_block

    return decorate_as_block


@check.guard
def removeBlocks(module: torch.nn.Module) -> None:
    """Removes the blocks that `BeginBlock` added to a module and its submodules."""
    check.require_instance(
        module, torch.nn.Module, "the model of removeBlocks", "a torch.nn.Module"
    )
    for submodule in module.modules():
        hooks = submodule._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if isinstance(hook, _BlockHook)]:
            del hooks[key]


@check.guard
def module_repr(module: torch.nn.Module) -> str:
    """Returns the text of a module, with the blocks that begin at its submodules."""
    check.require_instance(module, torch.nn.Module, "the model of module_repr", "a torch.nn.Module")
    return _format_module(module)


def _format_module(module: torch.nn.Module) -> str:
    hooks = [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, _BlockHook)]
    children = [
        f"({name}): {_format_module(child)}".replace("\n", "\n  ")
        for name, child in module.named_children()
    ]
    extra = [line for line in module.extra_repr().split("\n") if line]
    name = module._get_name()
    if children:
        lines = "\n  ".join([*extra, *children])
        text = f"{name}(\n  {lines}\n)"
    else:
        text = f"{name}({', '.join(extra)})"
    return " ".join([*map(repr, hooks), text])


def _check_block_arguments(user_id: object, ipu_id: object) -> tuple[str | None, int | None]:
    """Checks a block's name and IPU, and returns them; a number becomes a name."""
    if isinstance(user_id, int):
        user_id = str(check.require_integer(user_id, "the user_id of a block", at_least=0))
    name: str | None = check.require_text(user_id, "the user_id of a block", optional=True)
    ipu = (
        None
        if ipu_id is None
        else check.require_integer(ipu_id, "the ipu_id of a block", at_least=0)
    )
    return name, ipu
