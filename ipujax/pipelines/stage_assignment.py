"""Assigns each equation, variable and value of a marked function to a pipeline stage.

A marked equation is in its stage, others in that of their operands. A variable (or state leaf)
lives in the stage that first reads it: the first stage of a marked reader, if there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ipujax.ground import PipelineError
from lowering import jaxpr, marks, ops, pipelines, size_in_bytes

Var = jaxpr.Var


def current_stage() -> int | None:
    """Returns the stage that the marks around the code being traced give, or None."""
    return marks.read_marks(jaxpr.current_name_stack()).stage


def stage_scope_name(stage: int) -> str:
    """Returns the name of a `jax.named_scope` that marks the code in it with a stage."""
    return marks.write_mark(marks.STAGE, str(stage))


def ipu_scope_name(ipu: int) -> str:
    """Returns the name of a `jax.named_scope` that places what is traced in it on an IPU."""
    return marks.write_mark(marks.SHARD, str(ipu))


class StageAssignment:
    """The stages of a function's equations, variables and values.

    Args:
      body: the function, without unused equations and with its marks on top.
      elements: those of its arguments that are different for each micro-batch.
      count: the number of stages, where that is known; then a stage may be empty.

    Attributes:
      count: the number of stages.
      leaves: the other arguments: variables, and leaves of the state.
      of: the stage of each equation by its `id`; equations on constants alone have none.
      homes: the stage of each variable and leaf of the state that an equation reads.

    Raises:
      PipelineError: no marks, a stage without any, or stages that are not in order.
    """

    def __init__(self, body: jaxpr.Jaxpr, elements: Collection[Var], count: int | None = None):
        self._body, self.leaves = body, set(body.invars) - set(elements)
        self._marks = {id(eqn): _stage_marked_on_equation(eqn) for eqn in body.eqns}
        self.count = _count_stages(set(self._marks.values()) - {None}, count)
        self.of: dict[int, int] = {}
        self.homes: dict[Var, int] = {}
        self._makers = {var: eqn for eqn in body.eqns for var in eqn.outvars}
        self._made = dict.fromkeys(elements, 0)
        for eqn in body.eqns:
            if (mark := self._marks[id(eqn)]) is not None:
                self._assign_equation(eqn, mark)
        self._assign_variables_to_first_readers()
        self._latest = self._find_latest_stages()
        num_assigned = -1
        while num_assigned < len(self.of):
            num_assigned = len(self.of)
            self._assign_to_stages_of_operands()
            self._assign_to_stages_of_readers()
            self._assign_variables_to_first_readers()
        self._assign_rest_to_last_stage()
        self._move_element_equations_to_reader_stages()

    def stage_of_value(self, var: Var) -> int | None:
        """Returns the stage that computes a value, or that a variable lives in, or None."""
        return self._made.get(var, self.homes.get(var))

    def is_marked(self, eqn: jaxpr.JaxprEqn) -> bool:
        """Returns whether the user marked the equation with a stage."""
        return self._marks[id(eqn)] is not None

    def _find_latest_stages(self) -> dict[int, int]:
        """Returns for each equation the latest stage in which its marked readers need it."""
        latest: dict[int, int] = {}
        readers: dict[Var, int] = {}
        for eqn in reversed(self._body.eqns):
            stages = [readers[v] for v in eqn.outvars if v in readers]
            latest[id(eqn)] = self.of.get(id(eqn), min(stages, default=self.count - 1))
            for var in pipelines.unique_variables(eqn.invars):
                readers[var] = min(latest[id(eqn)], readers.get(var, self.count))
        return latest

    def _assign_to_stages_of_operands(self) -> None:
        """Assigns equations with an assigned operand to a stage."""
        for eqn in self._body.eqns:
            operands = pipelines.unique_variables(eqn.invars)
            if id(eqn) not in self.of:
                stages = [stage for v in operands if (stage := self.stage_of_value(v)) is not None]
                if stages:
                    # A variable's home may be later than the value is needed; nothing else may.
                    operand_stages = [self._made[v] for v in operands if v in self._made]
                    self._assign_equation(
                        eqn, min(max(stages), max([self._latest[id(eqn)], *operand_stages]))
                    )
            elif self.is_marked(eqn):
                self._check_operand_stages(eqn, operands)

    def _assign_to_stages_of_readers(self) -> None:
        """Assigns equations on unassigned variables to the stage of their first reader."""
        movable = pipelines.variables_depending_on(self._body.eqns, self.leaves)
        readers: dict[Var, int] = {}
        for eqn in reversed(self._body.eqns):
            stages = [readers[v] for v in eqn.outvars if v in readers]
            if id(eqn) not in self.of and stages and not movable.isdisjoint(eqn.outvars):
                self._assign_equation(eqn, min(stages))
            if (stage := self.of.get(id(eqn))) is not None:
                for var in pipelines.unique_variables(eqn.invars):
                    readers[var] = min(stage, readers.get(var, stage))

    def _assign_variables_to_first_readers(self) -> None:
        """Assigns variables to the first stage that reads them."""
        for eqn in self._body.eqns:
            if (stage := self.of.get(id(eqn))) is not None:
                for var in self.leaves.intersection(pipelines.unique_variables(eqn.invars)):
                    self.homes[var] = min(stage, self.homes.get(var, stage))

    def _assign_rest_to_last_stage(self) -> None:
        """Assigns unconstrained equations, such as a counter's, to the last stage."""
        movable = pipelines.variables_depending_on(self._body.eqns, self.leaves)
        for eqn in self._body.eqns:
            if id(eqn) not in self.of and (eqn.effects or not movable.isdisjoint(eqn.outvars)):
                self._assign_equation(eqn, self.count - 1)
        self._assign_variables_to_first_readers()

    def _move_element_equations_to_reader_stages(self) -> None:
        """Moves equations on elements alone, such as one-hot labels, to their first reader's stage.

        An equation stays where it is if its results are smaller than its operands.
        """
        anchors = [v for e in self._body.eqns if self.is_marked(e) or e.effects for v in e.outvars]
        fixed = pipelines.variables_depending_on(self._body.eqns, self.leaves.union(anchors))
        readers = dict.fromkeys(pipelines.unique_variables(self._body.outvars), 0)
        for eqn in reversed(self._body.eqns):
            if id(eqn) not in self.of:
                continue
            inputs_read, outputs_read = (
                pipelines.unique_variables(eqn.invars),
                [v for v in eqn.outvars if v in readers],
            )
            if (
                fixed.isdisjoint(eqn.outvars)
                and not eqn.effects
                and _total_bytes(outputs_read) >= _total_bytes(inputs_read)
            ):
                self._assign_equation(
                    eqn, max(self.of[id(eqn)], min(readers[v] for v in outputs_read))
                )
            for var in inputs_read:
                readers[var] = min(self.of[id(eqn)], readers.get(var, self.count))

    def _assign_equation(self, eqn: jaxpr.JaxprEqn, stage: int) -> None:
        self.of[id(eqn)] = stage
        self._made.update(dict.fromkeys(eqn.outvars, stage))

    def _check_operand_stages(self, eqn: jaxpr.JaxprEqn, operands: Sequence[Var]) -> None:
        """Raises an error if a marked equation needs a value of a later stage."""
        stage = self.of[id(eqn)]
        for var in operands:
            if (later := self._made.get(var, 0)) > stage:
                cause = self._find_marked_equation_behind_stage(var, later)
                raise PipelineError(
                    f"the stages are not in order: `{_scope_or_word(eqn)}` is in stage "
                    f"{stage}, and needs what `{_scope_or_word(cause)}` computes in "
                    f"stage {later}",
                    where=jaxpr.user_line(eqn),
                    fix="give what comes later in the model the same stage or a later one",
                )

    def _find_marked_equation_behind_stage(self, var: Var, stage: int) -> jaxpr.JaxprEqn:
        """Finds the marked equation that put a value into its stage."""
        eqn = self._makers[var]
        while not self.is_marked(eqn):
            operands = pipelines.unique_variables(eqn.invars)
            same_stage_operands = [
                v for v in operands if v in self._makers and self.stage_of_value(v) == stage
            ]
            if not same_stage_operands:
                break  # the home of a variable is the reason
            eqn = self._makers[same_stage_operands[0]]
        return eqn


def _stage_marked_on_equation(eqn: jaxpr.JaxprEqn) -> int | None:
    """Returns the stage that an equation is marked with, or None."""
    stages = pipelines.stages_in_marks(eqn)
    if len(stages) > 1:
        raise PipelineError(
            f"`{_scope_or_word(eqn)}` is one operation ({eqn.primitive.name}) of the "
            f"stages {_join_stage_numbers(stages)}, so that it cannot be cut",
            where=jaxpr.user_line(eqn),
            fix="let loops, conditionals, jax.checkpoint and functions with a derivative of their "
            "own be in one stage each",
        )
    return next(iter(stages), None)


def _count_stages(marked: set[Any], count: int | None) -> int:
    """Returns the number of stages, and checks that each has a mark."""
    if not marked and count is None:
        raise PipelineError(
            "nothing in the function says which stage it is in, so that it cannot be cut",
            fix="assign layers to the stages 0, 1, ...",
        )
    highest = max(marked, default=0)
    if count is not None and highest < count:
        return count
    missing = set(range(highest)) - marked
    if count is not None:
        raise PipelineError(
            f"something is in stage {highest}, and the last stage is {count - 1}",
            fix=f"assign stages from 0 to {count - 1}",
        )
    if missing:
        raise PipelineError(
            f"nothing that the results need is in stage {_join_stage_numbers(missing)}, and the "
            f"highest stage is {highest}",
            fix=f"let each of the stages 0 to {highest} compute something",
        )
    return highest + 1


def _total_bytes(values: Iterable[Var]) -> int:
    return sum(size_in_bytes(v.aval) for v in values)


def _join_stage_numbers(stages: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(stages)))


def _scope_or_word(eqn: jaxpr.JaxprEqn) -> str:
    """Returns the user's named scope of an equation, or the word for what it computes."""
    return marks.innermost_user_scope(jaxpr.name_stack(eqn)) or ops.word_of_equation(eqn)
