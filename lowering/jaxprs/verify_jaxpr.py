"""The verifier of jaxprs between passes; a broken promise is a bug of ours."""

from __future__ import annotations

from collections.abc import Iterable

from lowering.ground import InternalError
from lowering.jaxprs.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    equations_with_bodies,
    is_dropped,
    sub_jaxprs,
)


class JaxprVerifier:
    """A verifier of the jaxprs that passes make of one function.

    A body that a pass has left as it was is not checked again.
    """

    def __init__(self) -> None:
        self._verified: set[Jaxpr] = set()  # JAX compares jaxprs by identity

    def verify(self, closed: ClosedJaxpr) -> None:
        """Checks that each variable of a jaxpr is bound once, before it is read, at any depth.

        Raises:
          InternalError: the first broken promise, by equation.
        """
        if len(closed.consts) != len(closed.jaxpr.constvars):
            raise InternalError(
                f"a jaxpr has {len(closed.consts)} constants for "
                f"{len(closed.jaxpr.constvars)} variables"
            )
        self._verify_body(closed.jaxpr)

    def _verify_body(self, jaxpr: Jaxpr) -> None:
        if jaxpr in self._verified:
            return
        bound: set[Var] = set()
        _bind_variables((*jaxpr.constvars, *jaxpr.invars), bound, "a jaxpr's head")
        for eqn in equations_with_bodies(jaxpr):
            for body in sub_jaxprs(eqn):
                self._verify_body(body)
        for eqn in jaxpr.eqns:
            for atom in eqn.invars:
                if not isinstance(atom, Literal) and atom not in bound:
                    raise InternalError(
                        f"`{eqn.primitive.name}` reads a variable, operand "
                        f"{eqn.invars.index(atom)}, that nothing before it binds"
                    )
            _bind_variables(eqn.outvars, bound, eqn)
        if any(not isinstance(atom, Literal) and atom not in bound for atom in jaxpr.outvars):
            raise InternalError("a jaxpr returns a variable that nothing binds")
        self._verified.add(jaxpr)


def _bind_variables(variables: Iterable[Var], bound: set[Var], binder: JaxprEqn | str) -> None:
    for variable in variables:
        if variable in bound and not is_dropped(variable):
            name = binder if isinstance(binder, str) else f"`{binder.primitive.name}`"
            raise InternalError(f"{name} binds a variable of {variable.aval} for the second time")
        bound.add(variable)
