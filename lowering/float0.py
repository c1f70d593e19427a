"""Functions without float0, the dtype of JAX's gradients of integers, which hold no numbers.

No operation computes with such arrays; they are made, given new shapes, carried and returned. XLA
does not know the dtype, and JAX stores booleans in its place. So the compiler is given booleans,
and whoever calls the program exchanges its arguments and results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lowering.avals import Aval, shape_of
from lowering.jaxpr import (
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
from lowering.passes.rewrite import Anywhere

_FLOAT0 = jax.dtypes.float0


def is_float0(aval: Aval) -> bool:
    """Returns whether an array, or its aval, is of float0."""
    return getattr(aval, "dtype", None) == _FLOAT0


def booleans_for_float0(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a function with booleans, all False, in the place of float0, at any depth."""
    has_some = Anywhere(lambda eqn: any(map(is_float0, _avals((*eqn.invars, *eqn.outvars)))))
    return _Exchange(has_some)(closed)


def _avals(atoms: Sequence[Atom]) -> list[Aval]:
    return [atom.aval for atom in atoms]


class _Exchange:
    """Rewrites jaxprs; one that is shared by several equations stays shared."""

    def __init__(self, has_some: Anywhere):
        self._has_some = has_some
        self._known: dict[int, tuple[Jaxpr, Jaxpr]] = {}

    def __call__(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        old = closed.jaxpr
        ends = _avals((*old.constvars, *old.invars, *old.outvars))
        if not self._has_some(old) and not any(map(is_float0, ends)):
            return closed
        if id(old) not in self._known:
            self._known[id(old)] = old, self._rewrite_jaxpr(old)
        consts = [_zeros(value) if is_float0(value) else value for value in closed.consts]
        return ClosedJaxpr(self._known[id(old)][1], consts)

    def _rewrite_jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        names: dict[Var, Var] = {}

        def other(atom: Atom) -> Atom:
            if is_dropped(atom) or not is_float0(atom.aval):
                return atom
            if isinstance(atom, Literal):
                return Literal(_zeros(atom.aval), _boolean(atom.aval))
            if atom not in names:
                names[atom] = fresh_var(_boolean(atom.aval))
            return names[atom]

        def rewrite_equation(eqn: JaxprEqn) -> JaxprEqn:
            rewritten = map_sub_jaxprs(eqn, self)
            invars, outvars = list(map(other, eqn.invars)), list(map(other, eqn.outvars))
            return rewritten.replace(
                invars=invars, outvars=outvars, params=_params(rewritten.params)
            )

        return jaxpr.replace(
            constvars=list(map(other, jaxpr.constvars)),
            invars=list(map(other, jaxpr.invars)),
            outvars=list(map(other, jaxpr.outvars)),
            eqns=list(map(rewrite_equation, jaxpr.eqns)),
        )


def _params(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an equation that names a dtype, such as `iota` or a conversion."""
    dtypes = {n: v for n, v in params.items() if isinstance(v, np.dtype) and v == _FLOAT0}
    return {**params, **dict.fromkeys(dtypes, np.dtype(np.bool_))}


def _boolean(aval: Aval) -> Aval:
    return ShapedArray(shape_of(aval), np.dtype(np.bool_))


def _zeros(aval: Aval) -> Any:
    return np.zeros(shape_of(aval), np.bool_)
