"""Equations of jaxprs: what they read, where they are, jaxprs of some of them, their evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lowering.jaxpr import (
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


def variables(atoms: Iterable[Atom]) -> list[Var]:
    """The atoms that are variables, each once, in order."""
    return list(dict.fromkeys([a for a in atoms if not isinstance(a, Literal)]))


def renamed(atoms: Iterable[Atom], names: Mapping[Var, Atom]) -> list[Atom]:
    """The atoms, by their new names where they have one."""
    return [a if isinstance(a, Literal) else names.get(a, a) for a in atoms]


def values_of(atoms: Iterable[Atom], values: Mapping[Var, Any]) -> list[Any]:
    """The value of each atom."""
    return [a.val if isinstance(a, Literal) else values[a] for a in atoms]


def walk(
    jaxpr: Jaxpr | ClosedJaxpr, enters: Callable[[Jaxpr], bool] = lambda _: True
) -> Iterator[JaxprEqn]:
    """Every equation, each before those of its bodies, as far as `enters` lets one into these."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in filter(enters, sub_jaxprs(eqn)):
            yield from walk(inner, enters)


def fills_with_zeros(eqn: JaxprEqn) -> bool:
    """Whether an equation makes an array of zeros of a literal one."""
    if eqn.primitive.name != "broadcast_in_dim":
        return False
    filled = eqn.invars[0]
    return isinstance(filled, Literal) and not filled.val


def sliced(
    jaxpr: Jaxpr, invars: Sequence[Var], outvars: Sequence[Atom], eqns: Sequence[JaxprEqn]
) -> ClosedJaxpr:
    """A jaxpr of some of another's equations, without constants."""
    effects = frozenset(e for eqn in eqns for e in eqn.effects)
    debug = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    return ClosedJaxpr(Jaxpr((), list(invars), list(outvars), list(eqns), effects, debug), ())


def part_of(
    closed: ClosedJaxpr, invars: Sequence[Var], outvars: Sequence[Atom], eqns: Sequence[JaxprEqn]
) -> ClosedJaxpr:
    """The same, with the constants of the original."""
    part = sliced(closed.jaxpr, invars, outvars, eqns).jaxpr
    return ClosedJaxpr(part.replace(constvars=list(closed.jaxpr.constvars)), closed.consts)


def function_of(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """A closed jaxpr as a function of its operands, which keeps its name stacks and lines."""
    return lambda *operands: run_equations(closed.jaxpr, closed.consts, operands)


def evaluate_with(
    closed: ClosedJaxpr,
    operands: Sequence[Any],
    run: Callable[[JaxprEqn, list[Any]], Sequence[Any]],
) -> list[Any]:
    """Evaluates a jaxpr whose equations `run` evaluates, each in its context."""
    jaxpr = closed.jaxpr
    values: dict[Var, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))
    for eqn in jaxpr.eqns:
        with in_context_of(eqn):
            results = run(eqn, values_of(eqn.invars, values))
        values.update(zip(eqn.outvars, results, strict=True))
    return values_of(jaxpr.outvars, values)
