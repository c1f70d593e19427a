"""Lets backward tasks compute activations again instead of keeping them from the forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowering.equations import renamed, sliced, values_of, variables
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, Var, fresh_var
from lowering.ops.tasks import Kind, Recomputation, TaskSpec, checkpoint_p, task_p
from lowering.pipelines.edit import call, rebuilt, stage_tasks, stages_of, traced, with_tasks
from lowering.pipelines.slices import acts, needed_for, read_from_outside, readers


def recompute(body: ClosedJaxpr, mode: Recomputation) -> ClosedJaxpr:
    """Makes the backward task of every stage run the stage's forward pass again.

    Before: tasks have no constants; a backward task reads what its forward task has left for it.
    After:  it reads the stage's inputs instead, what queues gave, what its forward task has found
            in buffers that it changes, and the user's checkpoints where `mode` interleaves; forward
            tasks leave nothing else. Recomputing before everything else is a task (and kernels) of
            its own inside the backward task.
    """
    for stage in stages_of(body):
        body = _stage(body, stage, mode)
    return body


def _stage(body: ClosedJaxpr, stage: int, mode: Recomputation) -> ClosedJaxpr:
    tasks = stage_tasks(body, stage)
    forward, backward = tasks.get(Kind.FORWARD), tasks.get(Kind.BACKWARD)
    late = [tasks[kind] for kind in (Kind.BACKWARD, Kind.WEIGHTS) if kind in tasks]
    read_late = {v for eqn in late for v in variables(eqn.invars)}
    if forward is None or backward is None or read_late.isdisjoint(forward.outvars):
        return body
    again = _Again(forward, [v for v in forward.outvars if v in read_late], mode)
    others = set(variables(body.jaxpr.outvars))
    others |= {v for v in forward.outvars if _is_read_by_others(body, v, late)}
    change = {
        id(forward): [again.forward_task(others)],
        id(backward): [again.backward_task(backward)],
    }
    if Kind.WEIGHTS in tasks:
        weights = tasks[Kind.WEIGHTS]
        invars = renamed(weights.invars, again.made_again)
        change[id(weights)] = [weights.replace(invars=invars)]
    return with_tasks(body, change)


def _is_read_by_others(body: ClosedJaxpr, var: Var, late: Sequence[JaxprEqn]) -> bool:
    return any(all(eqn is not task for task in late) for eqn in readers(body, var))


class _Again:
    """The slice of a forward task that makes some of its results once more.

    Attributes:
      residuals: those results.
      buffers: inside the forward task, what it finds there and changes.
      kept: inside the forward task, what is not computed again; `outside` is its name there.
      made_again: names for the residuals as the backward task gives them to the weights task.
    """

    def __init__(self, forward: JaxprEqn, residuals: Sequence[Var], mode: Recomputation):
        self.forward, self.residuals, self.mode = forward, residuals, mode
        jaxpr = forward.params["body"].jaxpr
        self.buffers = {jaxpr.invars[operand] for operand, _ in forward.params["spec"].accumulated}
        named = dict(zip(forward.outvars, jaxpr.outvars, strict=True))
        wanted = [named[v] for v in residuals]
        sources = {v for e in jaxpr.eqns if self.is_kept(e) for v in e.outvars}
        eqns = needed_for(jaxpr.eqns, wanted, sources)
        reads = read_from_outside(eqns, wanted)
        self.kept = [v for v in reads if v in sources]
        self.outside = [fresh_var(v.aval) for v in self.kept]
        self.slice = sliced(jaxpr, reads, wanted, eqns)
        names = dict(zip(jaxpr.invars, forward.invars, strict=True))
        names.update(zip(self.kept, self.outside, strict=True))
        self.operands = [names[v] for v in reads]
        self.made_again = {v: fresh_var(v.aval) for v in residuals}

    def is_kept(self, eqn: JaxprEqn) -> bool:
        """Whether the results are kept: what acts does so once, and checkpoints are asked for."""
        interleaved = self.mode is Recomputation.AND_BACKPROPAGATE
        if not self.buffers.isdisjoint(variables(eqn.invars)):
            return True  # a counter, say, has gone on when this is made again
        return acts(eqn) or (interleaved and eqn.primitive is checkpoint_p)

    def forward_task(self, others: set[Var]) -> JaxprEqn:
        """The forward task that leaves only what other stages read, and what is kept."""
        jaxpr = self.forward.params["body"].jaxpr
        pairs = zip(self.forward.outvars, jaxpr.outvars, strict=True)
        results = [pair for pair in pairs if pair[0] in others]
        results += zip(self.outside, self.kept, strict=True)
        closed = sliced(jaxpr, jaxpr.invars, [atom for _, atom in results], jaxpr.eqns)
        return rebuilt(self.forward, closed, self.forward.invars, [v for v, _ in results])

    def backward_task(self, backward: JaxprEqn) -> JaxprEqn:
        """The backward task that runs the slice first; what it makes is given to others as well."""
        rest = [v for v in variables(backward.invars) if v not in self.made_again]
        operands = variables([*self.operands, *rest])
        body: ClosedJaxpr = backward.params["body"]

        def function(*flat: Any) -> list[Any]:
            values = dict(zip(operands, flat, strict=True))
            made = self.run(values_of(self.operands, values))
            values.update(zip(self.residuals, made, strict=True))
            return [*call(body, values_of(backward.invars, values)), *made]

        closed = traced(function, [atom.aval for atom in operands])
        return rebuilt(backward, closed, operands, [*backward.outvars, *self.made_again.values()])

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Evaluates the slice, as a task of its own or among the equations around it."""
        if self.mode is Recomputation.AND_BACKPROPAGATE:
            return call(self.slice, operands)
        forward: TaskSpec = self.forward.params["spec"]
        spec = TaskSpec(kind=Kind.RECOMPUTE, stage=forward.stage, options=forward.options)
        return list(task_p.bind(*operands, body=self.slice, spec=spec))
