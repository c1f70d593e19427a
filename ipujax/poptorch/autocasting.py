"""Dtypes that are chosen by a policy, of `Module.autocast` and `poptorch.autocast`.

PopTorch had this until version 3.0. What is cast are the operands of operators, while a wrapper
traces the model: parameters keep their dtype, so that float32 ones train a model that computes
products in float16.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ipujax.poptorch.poptorch_checks import check

_SETTING = "_poptorch_autocast"  # the original's name, which pickled modules have


@check.guard
@dc.dataclass(frozen=True)
class Policy:
    """Which operators and layers compute in which dtype where dtypes are chosen automatically.

    An entry is a function, as `torch.bmm`, or a class of layers, as `torch.nn.Conv2d`, all of whose
    operators it means.

    Args:
      fp16: what computes in float16.
      fp32: what computes in float32.
      promote: what computes in float32 if its operands are in both.
      demote: what computes in float16 if its operands are in both.

    Raises:
      Error: an entry is neither a function nor a class of layers.
    """

    fp16: Sequence[Callable[..., object]] | None = None
    fp32: Sequence[Callable[..., object]] | None = None
    promote: Sequence[Callable[..., object]] | None = None
    demote: Sequence[Callable[..., object]] | None = None

    def __post_init__(self) -> None:
        for name, entries in dc.asdict(self).items():
            object.__setattr__(self, name, list(entries or ()))
            for entry in getattr(self, name):
                if not callable(entry) or not hasattr(entry, "__name__"):
                    needed = "a function of PyTorch or a class of layers"
                    raise check.wrong_type_error(needed, entry, f"an entry of {name}")


_PRODUCTS = (
    "addbmm addmm addmv addr baddbmm bmm conv1d conv2d conv3d conv_tbc conv_transpose1d "
    "conv_transpose2d conv_transpose3d matmul mm mv"
)
_SEVERAL_OPERANDS = "addcdiv addcmul atan2 bilinear cat cross dot equal index_put stack tensordot"

default = Policy(
    fp16=[getattr(torch, name) for name in _PRODUCTS.split()],
    promote=[getattr(torch, name) for name in _SEVERAL_OPERANDS.split()],
)
"""The policy of options that name none: products and convolutions compute in float16."""


class _Casts(TorchFunctionMode):
    """A mode that casts the operands of functions, where automatic dtypes are switched on.

    Attributes:
      is_on: whether they are.
      layer: the entries of the policy that the class of the running layer is among.
    """

    def __init__(self, policy: Policy):
        super().__init__()
        self.is_on = False
        self.layer: str | None = None
        self._policy = policy
        groups = ((f.name, getattr(policy, f.name)) for f in dc.fields(policy))
        self._group_of = {_operator_name(e): group for group, entries in groups for e in entries}

    def group_of_layer(self, layer: torch.nn.Module) -> str | None:
        """Returns the field of the policy that names a class of the layer."""
        for field in dc.fields(self._policy):
            classes = [e for e in getattr(self._policy, field.name) if isinstance(e, type)]
            if isinstance(layer, tuple(classes)):
                return field.name
        return None

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Calls a function of PyTorch, with its operands cast as the policy says."""
        operands = tuple(args), dict(kwargs or {})
        name = _operator_name(func)
        if self.is_on and name is not None and name not in _CONVERSIONS:
            group = self.layer or self._group_of.get(name)
            operands = _cast(operands, group)
        return func(*operands[0], **operands[1])


_CONVERSIONS = frozenset(("to", "type", "type_as", "half", "float", "bfloat16", "double", "copy"))
_SAME_OPERATOR = {
    "linear": "matmul",
    "rmatmul": "matmul",
    "radd": "add",
    "rsub": "sub",
    "rmul": "mul",
    "truediv": "div",
    "rtruediv": "div",
    "rpow": "pow",
}


def _operator_name(function: object) -> str | None:
    """Returns the operator's name, one for all spellings; None for what writes to an operand."""
    name = str(getattr(function, "__name__", ""))
    bare = name.strip("_")
    writes = (name.endswith("_") and not name.startswith("_")) or name in _IN_PLACE
    return None if writes or name == "__get__" else _SAME_OPERATOR.get(bare, bare)


_IN_PLACE = frozenset(f"__i{name}__" for name in "add sub mul truediv matmul pow".split())
_DTYPE_OF = {
    "fp16": torch.float16,
    "fp32": torch.float32,
    "promote": torch.float32,
    "demote": torch.float16,
}


def _cast(operands: Any, group: str | None) -> Any:
    """Casts the float operands of a function to the dtype of its group in a policy."""
    if group is None:
        return operands
    dtypes = {leaf.dtype for leaf in pytree.tree_leaves(operands) if _can_be_cast(leaf)}
    if group in ("promote", "demote") and len(dtypes) < 2:
        return operands
    dtype = _DTYPE_OF[group]
    return pytree.tree_map(
        lambda leaf: leaf.to(dtype) if _can_be_cast(leaf) and leaf.dtype != dtype else leaf,
        operands,
    )


def _can_be_cast(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float16, torch.float32)


_casts_of_trace: list[_Casts] = []


@check.guard
class autocast:
    """A scope, and a decorator of functions, in which dtypes are chosen by the options' policy.

    It acts while a wrapper traces the model, and not on the CPU.

    Args:
      enabled: False for a part whose dtypes are not chosen, within one whose dtypes are.
    """

    def __init__(self, enabled: bool = True):
        self._enabled = check.require_flag(enabled, "enabled")
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        casts = _casts_of_trace[-1] if _casts_of_trace else None
        if casts is not None:
            self._undo.append(functools.partial(setattr, casts, "is_on", casts.is_on))
            casts.is_on = self._enabled

    def __exit__(self, *_: object) -> None:
        if self._undo:
            self._undo.pop()()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function with its body in such a scope."""

        @functools.wraps(function)
        def call_in_scope(*args: object, **kwargs: object) -> object:
            with autocast(self._enabled):
                return function(*args, **kwargs)

        return call_in_scope


def set_module_autocast(self: torch.nn.Module, enabled: bool = True) -> None:
    """Has dtypes be chosen automatically in a module and in what it contains, or not."""
    vars(self)[_SETTING] = check.require_flag(enabled, "enabled")


@contextlib.contextmanager
def cast_by_policy(module: torch.nn.Module, policy: Policy | None) -> Generator[None]:
    """Casts the operands of a module's operators in the block; not at all if policy is None."""
    if policy is None:
        yield
        return
    casts = _Casts(policy)
    with contextlib.ExitStack() as stack:
        for layer in _layers_to_watch(module, casts):
            before, after = _make_hooks(layer, casts)
            stack.callback(layer.register_forward_pre_hook(before, prepend=True).remove)
            stack.callback(layer.register_forward_hook(after, always_call=True).remove)
        _casts_of_trace.append(casts)
        stack.callback(_casts_of_trace.remove, casts)
        stack.enter_context(casts)
        yield


def _layers_to_watch(module: torch.nn.Module, casts: _Casts) -> Iterable[torch.nn.Module]:
    for layer in module.modules():
        if _SETTING in vars(layer) or casts.group_of_layer(layer) is not None:
            yield layer


def _make_hooks(
    layer: torch.nn.Module, casts: _Casts
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Makes hooks that switch the casts as a layer says, and back after its forward pass."""
    states: list[tuple[bool, str | None]] = []
    setting, group = vars(layer).get(_SETTING), casts.group_of_layer(layer)

    def enter(*_: object) -> None:
        states.append((casts.is_on, casts.layer))
        casts.is_on = casts.is_on if setting is None else setting
        casts.layer = group or casts.layer

    def leave(*_: object) -> None:
        casts.is_on, casts.layer = states.pop()

    return enter, leave
