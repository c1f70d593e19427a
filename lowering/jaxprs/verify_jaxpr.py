"""The verifier of jaxprs between passes; a broken promise is a bug of ours."""

from __future__ import annotations

from collections.abc import Iterable

from lowering.ground import InternalError
from lowering.jaxprs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, is_dropped, sub_jaxprs


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
        for eqn in jaxpr.eqns:
            self._verify_equation(eqn, bound)
        if any(not isinstance(atom, Literal) and atom not in bound for atom in jaxpr.outvars):
            raise InternalError("a jaxpr returns a variable that nothing binds")
        self._verified.add(jaxpr)

    def _verify_equation(self, eqn: JaxprEqn, bound: set[Var]) -> None:
        """Checks an equation after those that have bound some variables, and adds its own."""
        for position, atom in enumerate(eqn.invars):
            if not isinstance(atom, Literal) and atom not in bound:
                raise InternalError(
                    f"`{eqn.primitive.name}` reads a variable, operand {position}, that nothing "
                    "before it binds"
                )
        for body in sub_jaxprs(eqn):
            self._verify_body(body)
        _bind_variables(eqn.outvars, bound, f"`{eqn.primitive.name}`")


def _bind_variables(variables: Iterable[Var], bound: set[Var], binder: str) -> None:
    for variable in variables:
        if variable in bound and not is_dropped(variable):
            raise InternalError(f"{binder} binds a variable of {variable.aval} for the second time")
        bound.add(variable)
