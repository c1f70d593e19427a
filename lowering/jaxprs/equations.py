"""Tools on the equations of jaxprs: operands, walks, jaxprs of some equations, evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lowering.jaxprs.jaxpr import (
    CALLS,
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    equations_with_bodies,
    is_tracer,
    run_equations,
    sub_jaxprs,
    use_configuration_of,
)


def unique_variables(atoms: Iterable[Atom]) -> list[Var]:
    """Returns the atoms that are variables, each once, in order."""
    variables = [a for a in atoms if not isinstance(a, Literal)]
    count = len(variables)
    if count < 2 or (count == 2 and variables[0] is not variables[1]):
        return variables
    return list(dict.fromkeys(variables))


def rename_atoms(atoms: Iterable[Atom], new_name_of_variable: Mapping[Var, Atom]) -> list[Atom]:
    """Returns the atoms, each variable replaced by its new name if it has one."""
    return [a if isinstance(a, Literal) else new_name_of_variable.get(a, a) for a in atoms]


def look_up_values(atoms: Iterable[Atom], values: Mapping[Var, Any]) -> list[Any]:
    """Returns the value of each atom."""
    return [a.val if isinstance(a, Literal) else values[a] for a in atoms]


def walk_equations(
    jaxpr: Jaxpr | ClosedJaxpr, may_enter: Callable[[Jaxpr], bool] = lambda _: True
) -> Iterator[JaxprEqn]:
    """Yields the equations of a jaxpr, each before those of its bodies that `may_enter` accepts."""
    eqns_with_bodies = iter(equations_with_bodies(jaxpr))
    next_with_bodies = next(eqns_with_bodies, None)
    for eqn in jaxpr.eqns:
        yield eqn
        if eqn is next_with_bodies:
            for body in filter(may_enter, sub_jaxprs(eqn)):
                yield from walk_equations(body, may_enter)
            next_with_bodies = next(eqns_with_bodies, None)


def params_without_derivative_rules(eqn: JaxprEqn) -> dict[str, Any]:
    """Returns the parameters that say what an equation computes, without derivative rules."""
    name = eqn.primitive.name
    has_rules = name.startswith(("custom_jvp_call", "custom_vjp_call"))
    return {CALLS[name]: eqn.params[CALLS[name]]} if has_rules else eqn.params


def broadcasts_zero(eqn: JaxprEqn) -> bool:
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


def with_constants_in_order_of_reading(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a jaxpr with only the constants that it reads, in the order of reading."""
    if not closed.consts:
        return closed
    jaxpr = closed.jaxpr
    value_of = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    atoms = (atom for eqn in jaxpr.eqns for atom in eqn.invars)
    constvars = [v for v in unique_variables([*atoms, *jaxpr.outvars]) if v in value_of]
    return ClosedJaxpr(jaxpr.replace(constvars=constvars), [value_of[v] for v in constvars])


def is_open_result(value: Any) -> bool:
    """Returns whether tracing knows nothing of a value but its aval."""
    return is_tracer(value) and not isinstance(getattr(value, "val", None), Literal)


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
        with use_configuration_of(eqn):
            results = run_equation(eqn, look_up_values(eqn.invars, values))
        values.update(zip(eqn.outvars, results, strict=True))
    return look_up_values(jaxpr.outvars, values)
