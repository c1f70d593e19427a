"""A traced function as if the user had given float16 wherever it has float32.

The results are for models of what that brings: they are lowered and modelled, never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.avals import dtype_name, shape_of
from lowering.equations import walk
from lowering.jaxpr import (
    AbstractRef,
    Atom,
    Aval,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    ShapedArray,
    Var,
    fresh_var,
    is_dropped,
    map_sub_jaxprs,
)

_SINGLE, _HALF = np.dtype("float32"), np.dtype("float16")
_NOT_OF_HALVES = frozenset(
    {
        *("cholesky", "eig", "eigh", "householder_product", "lu", "qr", "schur", "svd"),
        *("triangular_solve", "tridiagonal", "tridiagonal_solve", "geqrf", "hessenberg"),
        *("bitcast_convert_type", "complex", "fft", "real", "imag", "conj"),
        *("pure_callback", "io_callback", "debug_callback", "ffi_call", "pallas_call"),
    }
)
"""Primitives that have no float16, look at the bits of numbers, or leave them to others."""


def with_halves(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    """The function with float16 in the place of float32: arguments, constants, and all it makes.

    Returns:
      None for functions that need float32 somewhere: factorizations, complex numbers, callbacks,
      and what looks at the bits of numbers; and for those with Refs.
    """
    if any(_stays_single(eqn) for eqn in walk(closed.jaxpr)):
        return None
    return _Halver().close(closed)


def _stays_single(eqn: JaxprEqn) -> bool:
    """Returns whether an equation cannot be one of float16, or is about a Ref."""
    avals = (atom.aval for atom in (*eqn.invars, *eqn.outvars))
    return eqn.primitive.name in _NOT_OF_HALVES or any(
        isinstance(aval, AbstractRef) for aval in avals
    )


class _Halver:
    """Rewrites bodies; one that several equations share stays shared."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Jaxpr, Jaxpr]] = {}

    def close(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """A body with its constants, of which only shapes and dtypes are kept."""
        return ClosedJaxpr(self.halve(closed.jaxpr), [_halve_array(c) for c in closed.consts])

    def halve(self, jaxpr: Jaxpr) -> Jaxpr:
        """A body whose variables are float16 where they were float32."""
        if id(jaxpr) in self._known:
            return self._known[id(jaxpr)][1]
        names: dict[Var, Var] = {}

        def bind(variables: Sequence[Var]) -> list[Var]:
            new = [v if is_dropped(v) else fresh_var(_halve_aval(v.aval)) for v in variables]
            names.update(zip(variables, new, strict=True))
            return new

        def read(atoms: Sequence[Atom]) -> list[Atom]:
            return [_halve_literal(a) if isinstance(a, Literal) else names[a] for a in atoms]

        constvars, invars = bind(jaxpr.constvars), bind(jaxpr.invars)
        eqns: list[JaxprEqn] = []
        for eqn in jaxpr.eqns:
            inside = map_sub_jaxprs(eqn, self.close)
            params = {name: _halve_param(value) for name, value in inside.params.items()}
            operands = read(eqn.invars)
            eqns.append(inside.replace(invars=operands, outvars=bind(eqn.outvars), params=params))
        halved = jaxpr.replace(
            constvars=constvars, invars=invars, eqns=eqns, outvars=read(jaxpr.outvars)
        )
        self._known[id(jaxpr)] = jaxpr, halved
        return halved


def _halve_aval(aval: Aval) -> Aval:
    return aval.update(dtype=_HALF) if dtype_name(aval) == "float32" else aval


def _halve_literal(literal: Literal) -> Literal:
    if dtype_name(literal.aval) != "float32":
        return literal
    with np.errstate(over="ignore"):
        return Literal(np.asarray(literal.val, _HALF), _halve_aval(literal.aval))


def _halve_array(array: Any) -> Any:
    if getattr(array, "dtype", None) != _SINGLE:
        return array
    return np.broadcast_to(_HALF.type(0), shape_of(array))


def _halve_param(value: Any) -> Any:
    """A parameter of an equation: a dtype or an aval may say float32."""
    if isinstance(value, np.dtype):
        return _HALF if value == _SINGLE else value  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, ShapedArray):
        return _halve_aval(value)
    if type(value) is tuple:
        return tuple(map(_halve_param, value))  # pyright: ignore[reportUnknownArgumentType]
    return value
