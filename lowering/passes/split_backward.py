"""The split of backward tasks into input gradients, which others read, and weight gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Var,
    fresh_var,
    jaxpr_of_equations,
    unique_variables,
)
from lowering.ops import TaskRole, TaskSpec, is_task
from lowering.pipelines import (
    add_equations_with_actions,
    copy_task_with_kind,
    replace_equations_by_id,
    replace_task_body,
    select_equations_for,
    variables_read_from_outside,
)


def split_backward(body: ClosedJaxpr) -> ClosedJaxpr:
    """Splits each backward task of a pipeline's body into two tasks.

    Before: tasks have no constants; a backward task returns the stage's input gradients and adds to
            its weight gradients.
    After:  the backward task returns the input gradients, and its other values that the new weights
            task needs; the weights task adds to the weight gradients.
    """
    change = {
        id(eqn): _split_backward_task(eqn)
        for eqn in body.jaxpr.eqns
        if is_task(eqn) and eqn.params["spec"].kind is TaskRole.BACKWARD
    }
    return replace_equations_by_id(body, change)


def _split_backward_task(eqn: JaxprEqn) -> tuple[JaxprEqn, JaxprEqn]:
    task_body: ClosedJaxpr = eqn.params["body"]
    jaxpr = task_body.jaxpr
    spec: TaskSpec = eqn.params["spec"]
    buffers = {result: jaxpr.invars[operand] for operand, result in spec.accumulated}
    results = list(zip(eqn.outvars, jaxpr.outvars, strict=True))
    passed = [pair for i, pair in enumerate(results) if i not in buffers]
    input_eqns = add_equations_with_actions(
        jaxpr.eqns, select_equations_for(jaxpr.eqns, [atom for _, atom in passed])
    )
    # A buffer that input gradients depend on, as a counter for random keys is, stays with them.
    read = unique_variables(a for e in input_eqns for a in e.invars)
    added = {result for result, buffer in buffers.items() if buffer not in read}
    passed = [pair for i, pair in enumerate(results) if i not in added]
    summed = [pair for i, pair in enumerate(results) if i in added]

    input_eqns = add_equations_with_actions(
        jaxpr.eqns, select_equations_for(jaxpr.eqns, [atom for _, atom in passed])
    )
    early = set(map(id, input_eqns))
    weight_eqns = [e for e in jaxpr.eqns if id(e) not in early]
    weight_eqns = select_equations_for(weight_eqns, [atom for _, atom in summed])
    values_of_first = {var for e in input_eqns for var in e.outvars}
    crossing = [
        v
        for v in variables_read_from_outside(weight_eqns, [a for _, a in summed])
        if v in values_of_first
    ]
    outside = [fresh_var(var.aval) for var in crossing]

    names: dict[Var, Atom] = dict(zip(jaxpr.invars, eqn.invars, strict=True))
    names.update(zip(crossing, outside, strict=True))
    backward_task = _task_of_equations(
        eqn, input_eqns, [*passed, *zip(outside, crossing, strict=True)], names
    )
    return backward_task, copy_task_with_kind(
        _task_of_equations(eqn, weight_eqns, summed, names), TaskRole.WEIGHTS
    )


def _task_of_equations(
    eqn: JaxprEqn,
    eqns: Sequence[JaxprEqn],
    results: Sequence[tuple[Var, Atom]],
    names: Mapping[Var, Atom],
) -> JaxprEqn:
    """Returns a task of some of another's equations; `names` has their variables' outside names."""
    atoms = [atom for _, atom in results]
    reads = variables_read_from_outside(eqns, atoms)
    closed = jaxpr_of_equations(eqn.params["body"].jaxpr, reads, atoms, eqns)
    return replace_task_body(eqn, closed, [names[v] for v in reads], [v for v, _ in results])
