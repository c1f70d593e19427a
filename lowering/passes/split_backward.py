"""Splits backward tasks into input gradients, which others wait for, and weight gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowering.equations import sliced, variables
from lowering.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Var, fresh_var
from lowering.ops.tasks import Kind, is_task
from lowering.pipelines.edit import of_kind, rebuilt, with_tasks
from lowering.pipelines.slices import needed_for, read_from_outside, with_actions


def split_backward(body: ClosedJaxpr) -> ClosedJaxpr:
    """Makes two tasks of each backward task of a pipeline's body.

    Before: tasks have no constants; a backward task gives the stage's input gradients and adds to
            its weight gradients.
    After:  the backward task gives the input gradients, and what else the new weights task needs
            of what it has computed; the weights task adds to the weight gradients.
    """
    change = {
        id(eqn): _split(eqn)
        for eqn in body.jaxpr.eqns
        if is_task(eqn) and eqn.params["spec"].kind is Kind.BACKWARD
    }
    return with_tasks(body, change)


def _split(eqn: JaxprEqn) -> tuple[JaxprEqn, JaxprEqn]:
    inner: ClosedJaxpr = eqn.params["body"]
    jaxpr = inner.jaxpr
    buffers = {result: jaxpr.invars[operand] for operand, result in eqn.params["spec"].accumulated}
    results = list(zip(eqn.outvars, jaxpr.outvars, strict=True))
    passed = [pair for i, pair in enumerate(results) if i not in buffers]
    first = with_actions(jaxpr.eqns, needed_for(jaxpr.eqns, [atom for _, atom in passed]))
    # A buffer that input gradients depend on, as a counter for random keys is, stays with them.
    read = variables(a for e in first for a in e.invars)
    added = {result for result, buffer in buffers.items() if buffer not in read}
    passed = [pair for i, pair in enumerate(results) if i not in added]
    summed = [pair for i, pair in enumerate(results) if i in added]

    first = with_actions(jaxpr.eqns, needed_for(jaxpr.eqns, [atom for _, atom in passed]))
    early = set(map(id, first))
    rest = [e for e in jaxpr.eqns if id(e) not in early]
    rest = needed_for(rest, [atom for _, atom in summed])
    made = {var for e in first for var in e.outvars}
    crossing = [v for v in read_from_outside(rest, [a for _, a in summed]) if v in made]
    outside = [fresh_var(var.aval) for var in crossing]

    names: dict[Var, Atom] = dict(zip(jaxpr.invars, eqn.invars, strict=True))
    names.update(zip(crossing, outside, strict=True))
    one = _part(eqn, first, [*passed, *zip(outside, crossing, strict=True)], names)
    return one, of_kind(_part(eqn, rest, summed, names), Kind.WEIGHTS)


def _part(
    eqn: JaxprEqn,
    eqns: Sequence[JaxprEqn],
    results: Sequence[tuple[Var, Atom]],
    names: Mapping[Var, Atom],
) -> JaxprEqn:
    """A task of some of another's equations; `names` says what they are called outside."""
    atoms = [atom for _, atom in results]
    reads = read_from_outside(eqns, atoms)
    closed = sliced(eqn.params["body"].jaxpr, reads, atoms, eqns)
    return rebuilt(eqn, closed, [names[v] for v in reads], [v for v, _ in results])
