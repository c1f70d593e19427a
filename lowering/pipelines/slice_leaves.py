"""Moves slices of arguments in front of what is computed of the whole arguments.

A model in mixed precision casts its stacked parameters whole, and its scan is cut into slices of
the casts. Cast after slice is the same, and only the slices of the arguments are needed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lowering.jaxprs import (
    ELEMENTWISE,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Var,
    fresh_var,
    replace_equations,
    shape_of,
)
from lowering.pipelines.backward_slices import select_equations_for


def slice_leaves_first(closed: ClosedJaxpr, leaves: Collection[Var]) -> ClosedJaxpr:
    """Returns a function that slices arguments, not what it computes of one element by element.

    Args:
      closed: the function.
      leaves: the arguments to slice.
    """
    body = closed.jaxpr
    origins: dict[Var, tuple[Var, tuple[JaxprEqn, ...]]] = {leaf: (leaf, ()) for leaf in leaves}
    eqns: list[JaxprEqn] = []
    for eqn in body.eqns:
        operand = _only_array(eqn)
        leaf, chain = origins.get(operand, (None, ())) if operand is not None else (None, ())
        if leaf is not None and chain and eqn.primitive.name == "slice":
            eqns += _slice_before_chain(eqn, leaf, chain)
            continue
        if leaf is not None and _keeps_elements(eqn):
            origins[eqn.outvars[0]] = leaf, (*chain, eqn)
        eqns.append(eqn)
    if len(eqns) == len(body.eqns):
        return closed
    effectful = [eqn for eqn in eqns if eqn.effects]
    wanted = [*body.outvars, *(atom for eqn in effectful for atom in eqn.invars)]
    needed = {id(eqn) for eqn in (*effectful, *select_equations_for(eqns, wanted))}
    eqns = [eqn for eqn in eqns if id(eqn) in needed]
    return ClosedJaxpr(replace_equations(body, eqns, body.outvars), closed.consts)


def _only_array(eqn: JaxprEqn) -> Var | None:
    """Returns the only operand of an equation that is no literal; None if there are several."""
    arrays = [atom for atom in eqn.invars if isinstance(atom, Var)]
    return arrays[0] if len(arrays) == 1 else None


def _keeps_elements(eqn: JaxprEqn) -> bool:
    """Returns whether each element of the result depends on the same element of the operand."""
    is_elementwise = eqn.primitive.name in ELEMENTWISE and not eqn.effects
    shapes = [shape_of(atom.aval) for atom in eqn.invars if not isinstance(atom, Literal)]
    return is_elementwise and shapes == [shape_of(eqn.outvars[0].aval)]


def _slice_before_chain(eqn: JaxprEqn, leaf: Var, chain: Sequence[JaxprEqn]) -> list[JaxprEqn]:
    """Returns a slice of an argument, and a chain of equations on that slice."""
    shape = shape_of(eqn.outvars[0].aval)
    made = [leaf, *(link.outvars[0] for link in chain[:-1])]
    variables = [*(fresh_var(var.aval.update(shape=shape)) for var in made), eqn.outvars[0]]
    eqns = [eqn.replace(invars=[leaf], outvars=variables[:1])]
    for link, operand, result in zip(chain, variables, variables[1:], strict=False):
        operands = [operand if isinstance(atom, Var) else atom for atom in link.invars]
        eqns.append(link.replace(invars=operands, outvars=[result]))
    return eqns
