"""Which stage each equation of a marked function belongs to.

A mark says it, and what has none goes where its operands are. A variable (or a leaf of the state)
lives where it is first read: its home is the first stage of a marked reader, if it has any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ipujax.errors import PipelineError
from lowering import jaxpr, marks, pipelines, size_in_bytes

Var = jaxpr.Var


def current_stage() -> int | None:
    """The stage that the marks around what is traced here and now say."""
    return marks.read(jaxpr.current_name_stack()).stage


def stage_scope(stage: int) -> str:
    """The name of a `jax.named_scope` that marks what is traced in it with a stage."""
    return marks.write(marks.STAGE, str(stage))


def shard_scope(ipu: int) -> str:
    """The name of a `jax.named_scope` that places what is traced in it on an IPU."""
    return marks.write(marks.SHARD, str(ipu))


class Places:
    """The stages of a function's equations, variables and values.

    Args:
      body: the function; what its results do not need is left out, and marks are on top.
      elements: those of its arguments that are different for each micro-batch.
      count: the number of stages, where that is known; then a stage may be empty.

    Attributes:
      count: the number of stages.
      leaves: the other arguments: variables, and leaves of the state.
      of: of each equation, by `id`; those that depend on constants alone have none.
      homes: of variables and leaves of the state that somebody reads.

    Raises:
      PipelineError: no marks, a stage without any, or stages that are not in order.
    """

    def __init__(self, body: jaxpr.Jaxpr, elements: Collection[Var], count: int | None = None):
        self._body, self.leaves = body, set(body.invars) - set(elements)
        self._marks = {id(eqn): _marked(eqn) for eqn in body.eqns}
        self.count = _counted(set(self._marks.values()) - {None}, count)
        self.of: dict[int, int] = {}
        self.homes: dict[Var, int] = {}
        self._makers = {var: eqn for eqn in body.eqns for var in eqn.outvars}
        self._made = dict.fromkeys(elements, 0)
        for eqn in body.eqns:
            if (mark := self._marks[id(eqn)]) is not None:
                self._place(eqn, mark)
        self._find_homes()
        self._latest = self._before_marks()
        placed = -1
        while placed < len(self.of):
            placed = len(self.of)
            self._place_after_operands()
            self._place_before_readers()
            self._find_homes()
        self._place_rest()
        self._delay()

    def where(self, var: Var) -> int | None:
        """The stage that makes a value, or that a variable lives in; None for neither."""
        return self._made.get(var, self.homes.get(var))

    def is_marked(self, eqn: jaxpr.JaxprEqn) -> bool:
        """Whether the user said where the equation belongs."""
        return self._marks[id(eqn)] is not None

    def _before_marks(self) -> dict[int, int]:
        """The stage in which marked readers need what an equation makes, at the latest."""
        latest: dict[int, int] = {}
        readers: dict[Var, int] = {}
        for eqn in reversed(self._body.eqns):
            stages = [readers[v] for v in eqn.outvars if v in readers]
            latest[id(eqn)] = self.of.get(id(eqn), min(stages, default=self.count - 1))
            for var in pipelines.variables(eqn.invars):
                readers[var] = min(latest[id(eqn)], readers.get(var, self.count))
        return latest

    def _place_after_operands(self) -> None:
        """Places what depends on something that has a place."""
        for eqn in self._body.eqns:
            operands = pipelines.variables(eqn.invars)
            if id(eqn) not in self.of:
                stages = [stage for v in operands if (stage := self.where(v)) is not None]
                if stages:
                    # A variable's home may be later than the value is needed; nothing else may.
                    made = [self._made[v] for v in operands if v in self._made]
                    self._place(eqn, min(max(stages), max([self._latest[id(eqn)], *made])))
            elif self.is_marked(eqn):
                self._check_order(eqn, operands)

    def _place_before_readers(self) -> None:
        """Places what depends on variables without a place, by those who need it."""
        movable = pipelines.dependent(self._body.eqns, self.leaves)
        readers: dict[Var, int] = {}
        for eqn in reversed(self._body.eqns):
            stages = [readers[v] for v in eqn.outvars if v in readers]
            if id(eqn) not in self.of and stages and not movable.isdisjoint(eqn.outvars):
                self._place(eqn, min(stages))
            if (stage := self.of.get(id(eqn))) is not None:
                for var in pipelines.variables(eqn.invars):
                    readers[var] = min(stage, readers.get(var, stage))

    def _find_homes(self) -> None:
        """Lets variables live in the first stage that reads them."""
        for eqn in self._body.eqns:
            if (stage := self.of.get(id(eqn))) is not None:
                for var in self.leaves.intersection(pipelines.variables(eqn.invars)):
                    self.homes[var] = min(stage, self.homes.get(var, stage))

    def _place_rest(self) -> None:
        """Places what nothing says about, such as a counter: in the last stage, with the loss."""
        movable = pipelines.dependent(self._body.eqns, self.leaves)
        for eqn in self._body.eqns:
            if id(eqn) not in self.of and (eqn.effects or not movable.isdisjoint(eqn.outvars)):
                self._place(eqn, self.count - 1)
        self._find_homes()

    def _delay(self) -> None:
        """Moves what is made of elements alone, such as one-hot labels, to where it is first read.

        It stays where it is if it is smaller than what it is made of.
        """
        anchors = [v for e in self._body.eqns if self.is_marked(e) or e.effects for v in e.outvars]
        fixed = pipelines.dependent(self._body.eqns, self.leaves.union(anchors))
        readers = dict.fromkeys(pipelines.variables(self._body.outvars), 0)
        for eqn in reversed(self._body.eqns):
            if id(eqn) not in self.of:
                continue
            made_of, made = (
                pipelines.variables(eqn.invars),
                [v for v in eqn.outvars if v in readers],
            )
            if (
                fixed.isdisjoint(eqn.outvars)
                and not eqn.effects
                and _bytes(made) >= _bytes(made_of)
            ):
                self._place(eqn, max(self.of[id(eqn)], min(readers[v] for v in made)))
            for var in made_of:
                readers[var] = min(self.of[id(eqn)], readers.get(var, self.count))

    def _place(self, eqn: jaxpr.JaxprEqn, stage: int) -> None:
        self.of[id(eqn)] = stage
        self._made.update(dict.fromkeys(eqn.outvars, stage))

    def _check_order(self, eqn: jaxpr.JaxprEqn, operands: Sequence[Var]) -> None:
        """No marked equation may need what a later stage makes."""
        stage = self.of[id(eqn)]
        for var in operands:
            if (later := self._made.get(var, 0)) > stage:
                raise PipelineError(
                    f"the stages are not in order: `{_scope(eqn)}` is in stage {stage}, and needs "
                    f"what `{_scope(self._cause(var, later))}` computes in stage {later}",
                    where=jaxpr.user_line(eqn),
                    fix="give what comes later in the model the same stage or a later one",
                )

    def _cause(self, var: Var, stage: int) -> jaxpr.JaxprEqn:
        """The marked equation because of which a value is in its stage."""
        eqn = self._makers[var]
        while not self.is_marked(eqn):
            operands = pipelines.variables(eqn.invars)
            made = [v for v in operands if v in self._makers and self.where(v) == stage]
            if not made:
                break  # the home of a variable is the reason
            eqn = self._makers[made[0]]
        return eqn


def _marked(eqn: jaxpr.JaxprEqn) -> int | None:
    """The stage that an equation is marked with."""
    stages = pipelines.marked_stages(eqn)
    if len(stages) > 1:
        raise PipelineError(
            f"`{_scope(eqn)}` is one operation ({eqn.primitive.name}) of the stages "
            f"{_listed(stages)}, so that it cannot be cut",
            where=jaxpr.user_line(eqn),
            fix="let loops, conditionals, jax.checkpoint and functions with a derivative of their "
            "own be in one stage each",
        )
    return next(iter(stages), None)


def _counted(marked: set[Any], count: int | None) -> int:
    """The number of stages."""
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
            f"nothing that the results need is in stage {_listed(missing)}, and the highest stage "
            f"is {highest}",
            fix=f"let each of the stages 0 to {highest} compute something",
        )
    return highest + 1


def _bytes(values: Iterable[Var]) -> int:
    return sum(size_in_bytes(v.aval) for v in values)


def _listed(stages: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(stages)))


def _scope(eqn: jaxpr.JaxprEqn) -> str:
    """What the user calls the equation's part of the model."""
    return marks.scope(jaxpr.name_stack(eqn)) or eqn.primitive.name
