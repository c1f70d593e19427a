"""Tools on the equations of jaxprs: operands, walks, jaxprs of some equations, evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lowering.jaxprs.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    in_context_of,
    run_equations,
    sub_jaxprs,
)


def unique_variables(atoms: Iterable[Atom]) -> list[Var]:
    """Returns the atoms that are variables, each once, in order."""
    return list(dict.fromkeys([a for a in atoms if not isinstance(a, Literal)]))


def rename_atoms(atoms: Iterable[Atom], new_name_of_variable: Mapping[Var, Atom]) -> list[Atom]:
    """Returns the atoms, each variable replaced by its new name if it has one."""
    return [a if isinstance(a, Literal) else new_name_of_variable.get(a, a) for a in atoms]


def values_of(atoms: Iterable[Atom], values: Mapping[Var, Any]) -> list[Any]:
    """Returns the value of each atom."""
    return [a.val if isinstance(a, Literal) else values[a] for a in atoms]


def walk_equations(
    jaxpr: Jaxpr | ClosedJaxpr, may_enter: Callable[[Jaxpr], bool] = lambda _: True
) -> Iterator[JaxprEqn]:
    """Yields the equations of a jaxpr, each before those of its bodies that `may_enter` accepts."""
    for eqn in jaxpr.eqns:
        yield eqn
        for body in filter(may_enter, sub_jaxprs(eqn)):
            yield from walk_equations(body, may_enter)


def fills_with_zeros(eqn: JaxprEqn) -> bool:
    """Returns whether an equation broadcasts a literal zero to an array."""
    if eqn.primitive.name != "broadcast_in_dim":
        return False
    filled = eqn.invars[0]
    return isinstance(filled, Literal) and not filled.val


def jaxpr_of_equations(
    jaxpr: Jaxpr, invars: Sequence[Var], outvars: Sequence[Atom], eqns: Sequence[JaxprEqn]
) -> ClosedJaxpr:
    """Returns a jaxpr of some equations of another one, without constants."""
    effects = frozenset(e for eqn in eqns for e in eqn.effects)
    debug = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    return ClosedJaxpr(Jaxpr((), list(invars), list(outvars), list(eqns), effects, debug), ())


def jaxpr_of_equations_with_constants(
    closed: ClosedJaxpr, invars: Sequence[Var], outvars: Sequence[Atom], eqns: Sequence[JaxprEqn]
) -> ClosedJaxpr:
    """Returns a jaxpr of some equations of another one, with that one's constants."""
    part = jaxpr_of_equations(closed.jaxpr, invars, outvars, eqns).jaxpr
    return ClosedJaxpr(part.replace(constvars=list(closed.jaxpr.constvars)), closed.consts)


def function_of_jaxpr(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Returns a closed jaxpr as a function of its operands; keeps name stacks and lines."""
    return lambda *operands: run_equations(closed.jaxpr, closed.consts, operands)


def evaluate_equations_with(
    closed: ClosedJaxpr,
    operands: Sequence[Any],
    run_equation: Callable[[JaxprEqn, list[Any]], Sequence[Any]],
) -> list[Any]:
    """Evaluates a jaxpr by calling `run_equation` for each equation, in its context."""
    jaxpr = closed.jaxpr
    values: dict[Var, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))
    for eqn in jaxpr.eqns:
        with in_context_of(eqn):
            results = run_equation(eqn, values_of(eqn.invars, values))
        values.update(zip(eqn.outvars, results, strict=True))
    return values_of(jaxpr.outvars, values)
