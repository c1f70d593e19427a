"""The variant of a traced function that has float16 wherever the user gave float32.

The variants serve to model what float16 would gain: they are lowered and modelled, never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.jaxprs.avals import dtype_name, shape_of
from lowering.jaxprs.equations import walk_equations
from lowering.jaxprs.jaxpr import (
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
"""Primitives without a float16 version, that look at bits, or whose code is not ours."""


def replace_float32_by_float16(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    """Returns a function with float16 in the place of float32, constants included.

    Returns:
      None for functions that need float32 somewhere (factorizations, complex numbers, callbacks,
      operations on the bits of numbers), and for those with Refs.
    """
    if any(_needs_float32(eqn) for eqn in walk_equations(closed.jaxpr)):
        return None
    return _Float16Rewriter().rewrite_closed_jaxpr_in_float16(closed)


def _needs_float32(eqn: JaxprEqn) -> bool:
    """Returns whether an equation has no float16 version, or touches a Ref."""
    avals = (atom.aval for atom in (*eqn.invars, *eqn.outvars))
    return eqn.primitive.name in _NOT_OF_HALVES or any(
        isinstance(aval, AbstractRef) for aval in avals
    )


class _Float16Rewriter:
    """A rewriter of bodies; one that several equations share stays shared."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Jaxpr, Jaxpr]] = {}

    def rewrite_closed_jaxpr_in_float16(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """Returns a body in float16, and constants of which only shapes and dtypes are kept."""
        return ClosedJaxpr(
            self.rewrite_jaxpr_in_float16(closed.jaxpr),
            [_array_in_float16(c) for c in closed.consts],
        )

    def rewrite_jaxpr_in_float16(self, jaxpr: Jaxpr) -> Jaxpr:
        """Returns a body whose variables are float16 where they were float32."""
        if id(jaxpr) in self._known:
            return self._known[id(jaxpr)][1]
        halved_variable: dict[Var, Var] = {}

        def bind_halved_variables(variables: Sequence[Var]) -> list[Var]:
            new_variables = [
                v if is_dropped(v) else fresh_var(_aval_in_float16(v.aval)) for v in variables
            ]
            halved_variable.update(zip(variables, new_variables, strict=True))
            return new_variables

        def halve_atoms(atoms: Sequence[Atom]) -> list[Atom]:
            return [
                _literal_in_float16(a) if isinstance(a, Literal) else halved_variable[a]
                for a in atoms
            ]

        constvars, invars = (
            bind_halved_variables(jaxpr.constvars),
            bind_halved_variables(jaxpr.invars),
        )
        eqns: list[JaxprEqn] = []
        for eqn in jaxpr.eqns:
            inner_eqn = map_sub_jaxprs(eqn, self.rewrite_closed_jaxpr_in_float16)
            params = {name: _param_in_float16(value) for name, value in inner_eqn.params.items()}
            operands = halve_atoms(eqn.invars)
            eqns.append(
                inner_eqn.replace(
                    invars=operands, outvars=bind_halved_variables(eqn.outvars), params=params
                )
            )
        halved = jaxpr.replace(
            constvars=constvars, invars=invars, eqns=eqns, outvars=halve_atoms(jaxpr.outvars)
        )
        self._known[id(jaxpr)] = jaxpr, halved
        return halved


def _aval_in_float16(aval: Aval) -> Aval:
    return aval.update(dtype=_HALF) if dtype_name(aval) == "float32" else aval


def _literal_in_float16(literal: Literal) -> Literal:
    if dtype_name(literal.aval) != "float32":
        return literal
    with np.errstate(over="ignore"):
        return Literal(np.asarray(literal.val, _HALF), _aval_in_float16(literal.aval))


def _array_in_float16(array: Any) -> Any:
    if getattr(array, "dtype", None) != _SINGLE:
        return array
    return np.broadcast_to(_HALF.type(0), shape_of(array))


def _param_in_float16(value: Any) -> Any:
    """Replaces float32 in a parameter of an equation, such as a dtype or an aval."""
    if isinstance(value, np.dtype):
        return _HALF if value == _SINGLE else value  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, ShapedArray):
        return _aval_in_float16(value)
    if type(value) is tuple:
        return tuple(map(_param_in_float16, value))  # pyright: ignore[reportUnknownArgumentType]
    return value
