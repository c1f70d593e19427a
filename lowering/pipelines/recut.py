"""Other cuts between the stages of a pipeline, for models of what they would bring."""

from __future__ import annotations

import bisect
import dataclasses as dc
from collections.abc import Sequence

from lowering import marks
from lowering.equations import renamed, sliced, variables
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Var,
    fresh_var,
    is_dropped,
    with_eqns,
    with_scope,
)
from lowering.ops.tasks import Kind, TaskSpec
from lowering.pipelines.edit import without_constants
from lowering.pipelines.order import Need, Order
from lowering.pipelines.slices import read_from_outside

_Step = tuple[JaxprEqn, JaxprEqn]
"""An equation, and the task that it is from."""

_WIDER = 1.5  # times what passes between the user's own stages may pass between others


class Flat(Order):
    """The equations of a pipeline's tasks, out of their tasks.

    Args:
      body: of the loop over micro-batches, with a forward and a backward task for each stage.

    Attributes:
      steps: equations of the forward pass in order, with the task that each is from.
      backward_steps: the same of the backward pass.
    """

    def __init__(self, body: ClosedJaxpr):
        self.body = without_constants(body)
        self.buffers: list[tuple[Atom, Atom]] = []
        self.names: dict[Var, Atom] = {}
        self.steps: list[_Step] = []
        self.backward_steps: list[_Step] = []
        for task in self.body.jaxpr.eqns:
            self._open(task)
        super().__init__([eqn for eqn, _ in self.steps], [eqn for eqn, _ in self.backward_steps])

    def _open(self, task: JaxprEqn) -> None:
        spec: TaskSpec = task.params["spec"]
        inner = task.params["body"].jaxpr
        operands = renamed(task.invars, self.names)
        names: dict[Var, Atom] = dict(zip(inner.invars, operands, strict=True))
        steps = self.steps if spec.kind is Kind.FORWARD else self.backward_steps
        for eqn in inner.eqns:
            outvars = [v if is_dropped(v) else fresh_var(v.aval) for v in eqn.outvars]
            opened = eqn.replace(invars=renamed(eqn.invars, names), outvars=outvars)
            names.update(zip(eqn.outvars, outvars, strict=True))
            steps.append((opened, task))
        results = renamed(inner.outvars, names)
        self.names.update(zip(task.outvars, results, strict=True))
        self.buffers += [(operands[i], results[o]) for i, o in spec.accumulated]

    def starts(self) -> list[int]:
        """Where the user's own stages begin."""
        stages = [task.params["spec"].stage for _, task in self.steps]
        return [n for n, stage in enumerate(stages) if not n or stage != stages[n - 1]]

    # --- where to cut -----------------------------------------------------------------------------

    def best(self, stages: int, need: Need, kept: int) -> list[int] | None:
        """Where to begin so many stages that the fullest holds least; None if that cannot be.

        Args:
          stages: how many, those that are kept not counted.
          need: what each holds.
          kept: so many of the user's own last stages stay as they are.
        """
        own = self.starts()
        tail = own[len(own) - kept :]
        end = tail[0] if tail else len(self.forward)
        crossing = self.crossing_bytes()
        most = _WIDER * max((crossing[n] for n in own[1:]), default=0)
        places = [n for n in range(1, end) if crossing[n] <= most]
        starts = self.starts_among(places, end, stages, need)
        return None if starts is None else [*starts, *tail]

    # --- tasks again ------------------------------------------------------------------------------

    def cut(self, starts: Sequence[int], ipus: Sequence[int]) -> ClosedJaxpr:
        """The body with tasks of stages that begin elsewhere, and are on these IPUs."""
        numbers = range(len(starts))
        groups: dict[tuple[Kind, int], list[_Step]] = {(Kind.FORWARD, n): [] for n in numbers}
        groups |= {(Kind.BACKWARD, n): [] for n in reversed(numbers)}
        placed = [(Kind.FORWARD, n, step) for n, step in enumerate(self.steps)]
        pairs = zip(self.places, self.backward_steps, strict=True)
        placed += [(Kind.BACKWARD, n, step) for n, step in pairs]
        for kind, place, (eqn, task) in placed:
            stage = bisect.bisect_right(starts, place) - 1
            on = marks.write(marks.SHARD, str(ipus[stage]))
            groups[kind, stage].append((with_scope(eqn, on), task))
        return self._tasks({key: steps for key, steps in groups.items() if steps})

    def _tasks(self, groups: dict[tuple[Kind, int], list[_Step]]) -> ClosedJaxpr:
        jaxpr = self.body.jaxpr
        last = renamed(jaxpr.outvars, self.names)
        outside = {v: fresh_var(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)}
        inner = {key: [eqn for eqn, _ in steps] for key, steps in groups.items()}
        reads = {key: read_from_outside(eqns, []) for key, eqns in inner.items()}
        wanted = {*variables(last), *(v for read in reads.values() for v in read)}
        tasks: list[JaxprEqn] = []
        for key, eqns in inner.items():
            results = [v for eqn in eqns for v in eqn.outvars if v in wanted]
            outside |= {v: fresh_var(v.aval) for v in results}
            closed = sliced(groups[key][0][1].params["body"].jaxpr, reads[key], results, eqns)
            spec = self._spec(*key, groups[key][0][1].params["spec"], reads[key], results)
            tasks.append(
                groups[key][0][1].replace(
                    invars=[outside[v] for v in reads[key]],
                    outvars=[outside[v] for v in results],
                    params={"body": closed, "spec": spec},
                    effects=closed.effects,
                )
            )
        outvars = [a if isinstance(a, Literal) else outside[a] for a in last]
        made = with_eqns(jaxpr, tasks, outvars).replace(
            invars=[outside[v] for v in jaxpr.invars],
            constvars=[outside[v] for v in jaxpr.constvars],
        )
        return ClosedJaxpr(made, self.body.consts)

    def _spec(
        self, kind: Kind, stage: int, like: TaskSpec, reads: list[Var], results: list[Var]
    ) -> TaskSpec:
        pairs = [
            (reads.index(buffer), results.index(result))
            for buffer, result in self.buffers
            if buffer in reads and result in results
        ]
        return dc.replace(like, kind=kind, stage=stage, accumulated=tuple(pairs))
