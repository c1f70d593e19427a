"""The classes of jaxprs with complete types; JAX annotates its own in part only.

Nothing here runs: a checker reads these declarations in place of JAX's own classes, which
`lowering/jaxprs/jaxpr.py` imports. They hold for JAX 0.10 and 0.11, and list what is used here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar, final

import numpy as np
from jax import Array
from jax.typing import DTypeLike

from lowering.jaxprs.avals import Aval
from lowering.jaxprs.jaxpr import Effect, JaxPrimitive, NameStack

RuleT = TypeVar("RuleT", bound=Callable[..., Any])
Effects: TypeAlias = AbstractSet[Effect]


class _AvalOfArray:
    """The attributes that the avals of an array and of a Ref to one share."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def weak_type(self) -> bool: ...
    def update(
        self,
        *,
        shape: Sequence[int] | None = None,
        dtype: np.dtype[Any] | None = None,
        weak_type: bool | None = None,
    ) -> Self: ...
    def str_short(self, short_dtypes: bool = False) -> str: ...


class ShapedArray(_AvalOfArray):
    """The aval of an array."""

    def __init__(self, shape: Sequence[int], dtype: DTypeLike, weak_type: bool = False) -> None: ...


class AbstractRef(_AvalOfArray):
    """The aval of a Ref, JAX's mutable array."""

    inner_aval: Aval

    def __init__(self, inner_aval: Aval) -> None: ...


class Var:
    """A variable of a jaxpr; equal to itself alone."""

    aval: Aval

    def __init__(self, aval: Aval) -> None: ...


class DropVar(Var):
    """The place of an equation's result that nothing reads."""


@final
class Literal:
    """A constant in the place of an operand or a result; it cannot be hashed."""

    val: Any
    aval: Aval
    __hash__: ClassVar[None]  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, val: Any, aval: Aval) -> None: ...


Atom: TypeAlias = Var | Literal


class Primitive(JaxPrimitive):
    """An operation, and what each transformation of JAX makes of it."""

    def __init__(self, name: str) -> None: ...
    def bind(self, *args: Any, **params: Any) -> Any: ...
    def impl(self, *args: Any, **params: Any) -> Any: ...
    def abstract_eval(self, *args: Any, **params: Any) -> tuple[Any, Effects]: ...
    def def_impl(self, impl: RuleT) -> RuleT: ...
    def def_abstract_eval(self, abstract_eval: RuleT) -> RuleT: ...
    def def_effectful_abstract_eval(self, effectful_abstract_eval: RuleT) -> RuleT: ...
    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]: ...


class Traceback(Protocol):
    """The frames that were running when an equation was traced, innermost first."""

    def raw_frames(self) -> tuple[list[CodeType], list[int]]: ...
    def __add__(self, other: Traceback) -> Traceback: ...


class SourceInfo(Protocol):
    """The source lines and the name stack of an equation."""

    traceback: Traceback | None
    name_stack: NameStack

    def replace(
        self, *, traceback: Traceback | None = None, name_stack: NameStack | None = None
    ) -> SourceInfo: ...


class EquationContext(Protocol):
    """The configuration that an equation was traced under; the same configuration is one object."""

    @property
    def manager(self) -> AbstractContextManager[None]: ...


class DebugInfo(NamedTuple):
    """The names that the user gave to a function, its arguments and results."""

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None
    result_paths: Any


class JaxprEqn:
    """An equation: a primitive, applied to atoms, gives variables."""

    invars: list[Atom]
    outvars: list[Var]
    primitive: Primitive
    params: dict[str, Any]
    effects: Effects
    source_info: SourceInfo
    ctx: EquationContext

    def replace(
        self,
        *,
        invars: Sequence[Atom] | None = None,
        outvars: Sequence[Var] | None = None,
        primitive: Primitive | None = None,
        params: dict[str, Any] | None = None,
        effects: Effects | None = None,
        source_info: SourceInfo | None = None,
        ctx: EquationContext | None = None,
    ) -> JaxprEqn: ...


class _Signature:
    """The attributes that an open and a closed jaxpr share."""

    @property
    def constvars(self) -> list[Var]: ...
    @property
    def invars(self) -> list[Var]: ...
    @property
    def outvars(self) -> list[Atom]: ...
    @property
    def eqns(self) -> list[JaxprEqn]: ...
    @property
    def effects(self) -> Effects: ...
    @property
    def debug_info(self) -> DebugInfo: ...
    @property
    def in_avals(self) -> list[Aval]: ...
    @property
    def out_avals(self) -> list[Aval]: ...


class Jaxpr(_Signature):
    """Equations in order, from the variables of constants and arguments to results."""

    def __init__(
        self,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[JaxprEqn],
        effects: Effects = frozenset(),
        debug_info: DebugInfo | None = None,
    ) -> None: ...
    def replace(
        self,
        *,
        constvars: Sequence[Var] | None = None,
        invars: Sequence[Var] | None = None,
        outvars: Sequence[Atom] | None = None,
        eqns: Sequence[JaxprEqn] | None = None,
        effects: Effects | None = None,
        debug_info: DebugInfo | None = None,
    ) -> Jaxpr: ...


class ClosedJaxpr(_Signature):
    """A jaxpr with the values of its constants."""

    @property
    def jaxpr(self) -> Jaxpr: ...
    @property
    def consts(self) -> list[Any]: ...
    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> None: ...
    def replace(
        self, *, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None
    ) -> ClosedJaxpr: ...


# --- functions and settings inside JAX -----------------------------------------------------------


class Setting(Protocol):
    """A setting of `jax.config`."""

    @property
    def value(self) -> bool: ...


debug_infs: Setting
debug_nans: Setting
disable_jit: Setting


def trace_context() -> object:
    """Declares `jax._src.config.trace_context`."""
    ...


def positional_effects(jaxpr: Jaxpr) -> Effects:
    """Declares `jax._src.core.positional_effects`."""
    ...


def current() -> SourceInfo:
    """Declares `jax._src.source_info_util.current`."""
    ...


def threefry_2x32(keypair: Array, count: Array) -> Array:
    """Declares `jax.extend.random.threefry_2x32`."""
    ...
