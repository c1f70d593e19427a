"""A change that a user could make to a program, as a function of the machine model's inputs."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

from lowering import LoweringError, Options, ir, jaxpr, lower, machine, variants


@dc.dataclass(frozen=True, slots=True)
class Source:
    """The traced function and the compiler options that a program was lowered from.

    Attributes:
      closed: the traced function.
      options: the compiler's options, without those for CPUs and GPUs only.
    """

    closed: jaxpr.ClosedJaxpr
    options: Options


@dc.dataclass(frozen=True, slots=True)
class Case:
    """The inputs of the machine model: a program, its source and the model's options.

    Attributes:
      program: the program as it was lowered.
      source: what it was lowered from; if None, only the model's options can change.
      options: the model's options.
      changed: whether the source differs from that of the program.
    """

    program: ir.Program
    source: Source | None
    options: machine.ModelOptions
    changed: bool = False

    def model_profile(self) -> machine.Profile | None:
        """Models the case; None where the compiler rejects the changed source."""
        if self.source is None or not self.changed:
            return machine.model(self.program, self.options)
        try:
            program = lower(self.source.closed, self.source.options)
        except LoweringError:
            return None
        return machine.model(program, self.options)

    def with_function_change(
        self, change: Callable[[jaxpr.ClosedJaxpr], jaxpr.ClosedJaxpr]
    ) -> Case:
        """Returns the case with another traced function."""
        if self.source is None:
            return self
        source = dc.replace(self.source, closed=change(self.source.closed))
        return dc.replace(self, source=source, changed=True)

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


def apply_model_cut(cut: variants.Recut | variants.Resharded, case: Case) -> Case:
    """Returns the case with its function cut for another number of IPUs."""
    replicas = case.program.replicas // (case.source.options.instances if case.source else 1)
    changed_case = case.with_function_change(lambda _: cut.closed)
    if cut.ipus > case.program.ipus:  # the ladder of links among more IPUs is unknown
        changed_case = dc.replace(changed_case, options=dc.replace(changed_case.options, ladder=()))
    return changed_case.with_compiler_options(num_ipus=cut.ipus * replicas, replicas=replicas)
