"""The replacement of float0, the dtype of JAX's gradients of integers, by booleans.

Such arrays hold no numbers, and no operation computes with them; they are made, reshaped, carried
and returned. XLA does not know the dtype, and JAX stores booleans in its place. So the compiler is
given booleans, and the caller of the program converts its arguments and results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import jax
import numpy as np

from lowering.jaxprs.avals import Aval, ShapedValue, shape_of
from lowering.jaxprs.jaxpr import (
    Atom,
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
from lowering.jaxprs.rewrite import EquationFinder

_FLOAT0 = jax.dtypes.float0


def is_float0(value: object) -> TypeGuard[ShapedValue]:
    """Returns whether an array, or its aval, is of float0."""
    return getattr(value, "dtype", None) == _FLOAT0


def replace_float0_by_booleans(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a function with booleans, all False, instead of float0, at any depth."""
    has_float0 = EquationFinder(
        lambda eqn: any(map(is_float0, _avals_of_atoms((*eqn.invars, *eqn.outvars))))
    )
    return _Float0Replacer(has_float0)(closed)


def _avals_of_atoms(atoms: Sequence[Atom]) -> list[Aval]:
    return [atom.aval for atom in atoms]


class _Float0Replacer:
    """A rewriter of jaxprs; a jaxpr that several equations share stays shared."""

    def __init__(self, has_float0: EquationFinder):
        self._has_some = has_float0
        self._known: dict[int, tuple[Jaxpr, Jaxpr]] = {}

    def __call__(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        jaxpr = closed.jaxpr
        boundary_avals = _avals_of_atoms((*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars))
        if not self._has_some(jaxpr) and not any(map(is_float0, boundary_avals)):
            return closed
        if id(jaxpr) not in self._known:
            self._known[id(jaxpr)] = jaxpr, self._replace_float0_in_jaxpr(jaxpr)
        consts = [
            _zeros_in_place_of_float0(value) if is_float0(value) else value
            for value in closed.consts
        ]
        return ClosedJaxpr(self._known[id(jaxpr)][1], consts)

    def _replace_float0_in_jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        boolean_of_variable: dict[Var, Var] = {}

        def replace_variable(var: Var) -> Var:
            if is_dropped(var) or not is_float0(var.aval):
                return var
            if var not in boolean_of_variable:
                boolean_of_variable[var] = fresh_var(_boolean_aval(var.aval))
            return boolean_of_variable[var]

        def replace_atom(atom: Atom) -> Atom:
            if isinstance(atom, Var):
                return replace_variable(atom)
            if not is_float0(atom.aval):
                return atom
            return Literal(_zeros_in_place_of_float0(atom.aval), _boolean_aval(atom.aval))

        def replace_float0_in_equation(eqn: JaxprEqn) -> JaxprEqn:
            new_eqn = map_sub_jaxprs(eqn, self)
            return new_eqn.replace(
                invars=list(map(replace_atom, eqn.invars)),
                outvars=list(map(replace_variable, eqn.outvars)),
                params=_replace_float0_params(new_eqn.params),
            )

        return jaxpr.replace(
            constvars=list(map(replace_variable, jaxpr.constvars)),
            invars=list(map(replace_variable, jaxpr.invars)),
            outvars=list(map(replace_atom, jaxpr.outvars)),
            eqns=list(map(replace_float0_in_equation, jaxpr.eqns)),
        )


def _replace_float0_params(params: dict[str, Any]) -> dict[str, Any]:
    """Replaces float0 in the parameters of an equation such as `iota` or a conversion."""
    names = [n for n, value in params.items() if isinstance(value, np.dtype) and value == _FLOAT0]
    return {**params, **dict.fromkeys(names, np.dtype(np.bool_))}


def _boolean_aval(aval: ShapedValue) -> Aval:
    return ShapedArray(shape_of(aval), np.dtype(np.bool_))


def _zeros_in_place_of_float0(aval: ShapedValue) -> Any:
    return np.zeros(shape_of(aval), np.bool_)
