"""Other cuts between the stages of a pipeline, to model what they would gain."""

from __future__ import annotations

import bisect
import dataclasses as dc
from collections.abc import Sequence

from lowering import marks
from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Var,
    add_innermost_scope,
    fresh_var,
    is_dropped,
    jaxpr_of_equations,
    rename_atoms,
    replace_equations,
    unique_variables,
)
from lowering.ops import TaskRole, TaskSpec
from lowering.pipelines.backward_slices import variables_read_from_outside
from lowering.pipelines.cuts import ForwardAndBackward, StageMemory
from lowering.pipelines.task_edits import lift_constants_of_tasks

_Step = tuple[JaxprEqn, JaxprEqn]
"""An equation, and the task that it is from."""

_WIDER = 1.5  # between other stages may pass this many times the bytes that pass between the user's


class FlatPipeline(ForwardAndBackward):
    """The equations of a pipeline's tasks, taken out of their tasks.

    Args:
      body: the body of the loop over micro-batches, with a forward and a backward task per stage.

    Attributes:
      steps: equations of the forward pass in order, with the task that each is from.
      backward_steps: the same of the backward pass.
    """

    def __init__(self, body: ClosedJaxpr):
        self.body = lift_constants_of_tasks(body)
        self.buffers: list[tuple[Atom, Atom]] = []
        self.names: dict[Var, Atom] = {}
        self.steps: list[_Step] = []
        self.backward_steps: list[_Step] = []
        for task in self.body.jaxpr.eqns:
            self._take_equations_out_of_task(task)
        super().__init__([eqn for eqn, _ in self.steps], [eqn for eqn, _ in self.backward_steps])

    def _take_equations_out_of_task(self, task: JaxprEqn) -> None:
        spec: TaskSpec = task.params["spec"]
        task_body = task.params["body"].jaxpr
        operands = rename_atoms(task.invars, self.names)
        new_name_of_variable: dict[Var, Atom] = dict(zip(task_body.invars, operands, strict=True))
        steps = self.steps if spec.kind is TaskRole.FORWARD else self.backward_steps
        for eqn in task_body.eqns:
            outvars = [v if is_dropped(v) else fresh_var(v.aval) for v in eqn.outvars]
            flat_eqn = eqn.replace(
                invars=rename_atoms(eqn.invars, new_name_of_variable), outvars=outvars
            )
            new_name_of_variable.update(zip(eqn.outvars, outvars, strict=True))
            steps.append((flat_eqn, task))
        results = rename_atoms(task_body.outvars, new_name_of_variable)
        self.names.update(zip(task.outvars, results, strict=True))
        self.buffers += [(operands[i], results[o]) for i, o in spec.accumulated]

    def starts_of_user_stages(self) -> list[int]:
        """Returns where the user's own stages begin."""
        stages = [task.params["spec"].stage for _, task in self.steps]
        return [n for n, stage in enumerate(stages) if not n or stage != stages[n - 1]]

    def take_forward(self, start: int, end: int) -> ClosedJaxpr:
        """Returns some equations of the forward pass as a function."""
        return self._take(self.forward[start:end])

    def take_backward(self, start: int, end: int) -> ClosedJaxpr:
        """Returns the equations of the backward pass that belong to some of the forward pass."""
        pairs = zip(self.places, self.backward, strict=True)
        return self._take([eqn for place, eqn in pairs if start <= place < end])

    def _take(self, eqns: Sequence[JaxprEqn]) -> ClosedJaxpr:
        reads = variables_read_from_outside(eqns, [])
        results = [v for eqn in eqns for v in eqn.outvars if not is_dropped(v)]
        return jaxpr_of_equations(self.body.jaxpr, reads, results, eqns)

    # --- where to cut -----------------------------------------------------------------------------

    def choose_balanced_starts(
        self, stages: int, stage_memory: StageMemory, num_fixed_stages: int
    ) -> list[int] | None:
        """Returns where to begin the stages, so that the fullest holds least; None if impossible.

        Args:
          stages: the number of stages, without those that stay as they are.
          stage_memory: the memory that each stage holds.
          num_fixed_stages: so many of the user's own last stages stay as they are.
        """
        user_starts = self.starts_of_user_stages()
        fixed_starts = user_starts[len(user_starts) - num_fixed_stages :]
        end = fixed_starts[0] if fixed_starts else len(self.forward)
        crossing = self.crossing_bytes()
        most_crossing_bytes = _WIDER * max((crossing[n] for n in user_starts[1:]), default=0)
        possible_starts = [n for n in range(1, end) if crossing[n] <= most_crossing_bytes]
        starts = self.choose_starts(possible_starts, end, stages, stage_memory)
        return None if starts is None else [*starts, *fixed_starts]

    # --- tasks again ------------------------------------------------------------------------------

    def build_tasks_of_new_stages(self, starts: Sequence[int], ipus: Sequence[int]) -> ClosedJaxpr:
        """Returns the body with tasks of stages that begin elsewhere, and are on these IPUs."""
        numbers = range(len(starts))
        groups: dict[tuple[TaskRole, int], list[_Step]] = {
            (TaskRole.FORWARD, n): [] for n in numbers
        }
        groups |= {(TaskRole.BACKWARD, n): [] for n in reversed(numbers)}
        steps_of_phases = [(TaskRole.FORWARD, n, step) for n, step in enumerate(self.steps)]
        pairs = zip(self.places, self.backward_steps, strict=True)
        steps_of_phases += [(TaskRole.BACKWARD, n, step) for n, step in pairs]
        for kind, forward_position, (eqn, task) in steps_of_phases:
            stage = bisect.bisect_right(starts, forward_position) - 1
            shard_mark = marks.write_mark(marks.SHARD, str(ipus[stage]))
            groups[kind, stage].append((add_innermost_scope(eqn, shard_mark), task))
        return self._build_tasks_of_steps({key: steps for key, steps in groups.items() if steps})

    def _build_tasks_of_steps(self, groups: dict[tuple[TaskRole, int], list[_Step]]) -> ClosedJaxpr:
        jaxpr = self.body.jaxpr
        last = rename_atoms(jaxpr.outvars, self.names)
        outside = {v: fresh_var(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)}
        eqns_of_phase = {key: [eqn for eqn, _ in steps] for key, steps in groups.items()}
        reads = {key: variables_read_from_outside(eqns, []) for key, eqns in eqns_of_phase.items()}
        values_read_elsewhere = {
            *unique_variables(last),
            *(v for read in reads.values() for v in read),
        }
        tasks: list[JaxprEqn] = []
        for key, eqns in eqns_of_phase.items():
            results = [v for eqn in eqns for v in eqn.outvars if v in values_read_elsewhere]
            outside |= {v: fresh_var(v.aval) for v in results}
            closed = jaxpr_of_equations(
                groups[key][0][1].params["body"].jaxpr, reads[key], results, eqns
            )
            spec = self._spec_of_new_task(
                *key, groups[key][0][1].params["spec"], reads[key], results
            )
            tasks.append(
                groups[key][0][1].replace(
                    invars=[outside[v] for v in reads[key]],
                    outvars=[outside[v] for v in results],
                    params={"body": closed, "spec": spec},
                    effects=closed.effects,
                )
            )
        outvars = [a if isinstance(a, Literal) else outside[a] for a in last]
        new_jaxpr = replace_equations(jaxpr, tasks, outvars).replace(
            invars=[outside[v] for v in jaxpr.invars],
            constvars=[outside[v] for v in jaxpr.constvars],
        )
        return ClosedJaxpr(new_jaxpr, self.body.consts)

    def _spec_of_new_task(
        self, kind: TaskRole, stage: int, old_spec: TaskSpec, reads: list[Var], results: list[Var]
    ) -> TaskSpec:
        pairs = [
            (reads.index(buffer), results.index(result))
            for buffer, result in self.buffers
            if buffer in reads and result in results
        ]
        return dc.replace(old_spec, kind=kind, stage=stage, accumulated=tuple(pairs))
