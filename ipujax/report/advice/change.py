"""A change that a user could make to a program, as a function of the machine model's inputs."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

from ipujax.report.advice.index import ProgramIndex
from lowering import LoweringError, Options, ir, jaxpr, lower, machine, pipelines, variants

SpecChange = Callable[[pipelines.TaskSpec], pipelines.TaskSpec]


@dc.dataclass(frozen=True, slots=True)
class Source:
    """The traced function and the compiler options that a program was lowered from.

    Attributes:
      closed: the traced function.
      options: the compiler's options, without those for CPUs and GPUs only.
    """

    closed: jaxpr.ClosedJaxpr
    options: Options


class ModelMemory:
    """Caches what several models of one program compute alike.

    Attributes:
      known: the parts of programs that the machine model has costed.
      num_lowered: how many programs were lowered for them.
    """

    def __init__(self) -> None:
        self.known = machine.KnownParts()
        self.num_lowered = 0
        self._index: ProgramIndex | None = None
        self._last: tuple[Source, ir.Program] | None = None

    def index_of(self, program: ir.Program) -> ProgramIndex:
        """Returns the index of a program; that of the first one is kept."""
        if self._index is None:
            self._index = ProgramIndex(program)
        return self._index if self._index.program is program else ProgramIndex(program)

    def lower_once(self, source: Source) -> ir.Program:
        """Returns the program of a source; the last one is lowered once.

        Raises:
          LoweringError: a source that the compiler rejects.
        """
        last = self._last
        is_same = last and last[0].closed is source.closed and last[0].options == source.options
        if last is None or not is_same:
            last = self._last = source, lower(source.closed, source.options)
            self.num_lowered += 1
        return last[1]


@dc.dataclass(frozen=True, slots=True)
class Case:
    """The inputs of the machine model: a program, its source and the model's options.

    Attributes:
      program: the program as it was lowered.
      source: what it was lowered from; if None, only the model's options can change.
      options: the model's options.
      changed: whether the source differs from that of the program.
      change_spec: returns the specification of a task after changes, which the model alone reads.
      memory: what models of the program found so far.
    """

    program: ir.Program
    source: Source | None
    options: machine.ModelOptions
    changed: bool = False
    change_spec: SpecChange | None = None
    memory: ModelMemory = dc.field(default_factory=ModelMemory)

    def model_profile(self) -> machine.Profile | None:
        """Models the case; None where the compiler rejects the changed source."""
        program = self.program
        if self.source is not None and self.changed:
            try:
                program = self.memory.lower_once(self.source)
            except LoweringError:
                return None
        if (change := self.change_spec) is not None:
            program = _with_task_specs(program, change)
        return machine.model(program, self.options, known=self.memory.known)

    def with_function_change(
        self, change: Callable[[jaxpr.ClosedJaxpr], jaxpr.ClosedJaxpr]
    ) -> Case:
        """Returns the case with another traced function."""
        if self.source is None:
            return self
        source = dc.replace(self.source, closed=change(self.source.closed))
        return dc.replace(self, source=source, changed=True)

    def with_task_specs(self, change: SpecChange) -> Case:
        """Returns the case with other specifications of tasks, which the model alone reads."""
        before = self.change_spec
        both = change if before is None else lambda spec: change(before(spec))
        return dc.replace(self, change_spec=both)

    def with_compiler_options(self, **options: Any) -> Case:
        """Returns the case with other compiler options."""
        if self.source is None:
            return self
        changed_options = dc.replace(self.source.options, **options)
        source = dc.replace(self.source, options=changed_options)
        return dc.replace(self, source=source, changed=True)


@dc.dataclass(frozen=True, slots=True)
class Change:
    """A change to a program that a user could make, and its effect on the model.

    Attributes:
      rule: a word for it, the same for every program; changes of one rule exclude each other.
      text: an instruction to the user.
      short: a short form for lists of changes.
      apply: returns the case to model after the change.
      first: whether it must be applied before other changes.
      ipus: how many IPUs it divides the model over; None if it does not divide the model.
      line: the user's source line, if the change is about that line alone.
      is_late: whether it is only to be tried where the others are not enough, as it costs the user
        more than time: precision, or IPUs.
      make_stronger: returns the same change with more effect, to be tried next, or None.
    """

    rule: str
    text: str
    short: str
    apply: Callable[[Case], Case]
    first: bool = False
    ipus: int | None = None
    line: str = ""
    is_late: bool = False
    make_stronger: Callable[[], Change | None] = lambda: None

    def cannot_go_with(self, change: Change) -> bool:
        """Returns whether the two cannot be made together: both cut the model, or share a rule."""
        has_same_rule = (self.rule, self.line) == (change.rule, change.line)
        return has_same_rule or (self.first and change.first)


def _with_task_specs(program: ir.Program, change: SpecChange) -> ir.Program:
    def change_task(node: ir.Node) -> ir.Node:
        return dc.replace(node, spec=change(node.spec)) if isinstance(node, ir.Task) else node

    return dc.replace(program, body=ir.rewrite_nodes(program.body, change_task))


def apply_model_cut(cut: variants.Recut | variants.Resharded, case: Case) -> Case:
    """Returns the case with its function cut for another number of IPUs."""
    replicas = case.program.replicas // (case.source.options.instances if case.source else 1)
    changed_case = case.with_function_change(lambda _: cut.closed)
    if cut.ipus > case.program.ipus:  # the ladder of links among more IPUs is unknown
        changed_case = dc.replace(changed_case, options=dc.replace(changed_case.options, ladder=()))
    return changed_case.with_compiler_options(num_ipus=cut.ipus * replicas, replicas=replicas)
