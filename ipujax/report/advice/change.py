"""A change that a user could make to a program, as a function of what a model is made of."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

from lowering import LoweringError, Options, ir, jaxpr, lower, machine, variants


@dc.dataclass(frozen=True, slots=True)
class Source:
    """What a program was lowered from.

    Attributes:
      closed: the traced function.
      options: what the compiler was told, without what only CPUs and GPUs need.
    """

    closed: jaxpr.ClosedJaxpr
    options: Options


@dc.dataclass(frozen=True, slots=True)
class Case:
    """What a model is made of.

    Attributes:
      program: as it was lowered.
      source: from what; None if nobody knows, and then nothing changes but the model's options.
      options: of the model.
      changed: whether the source is another one than that of the program.
    """

    program: ir.Program
    source: Source | None
    options: machine.ModelOptions
    changed: bool = False

    def profile(self) -> machine.Profile | None:
        """What the model says; None where the program cannot be lowered like that."""
        if self.source is None or not self.changed:
            return machine.model(self.program, self.options)
        try:
            program = lower(self.source.closed, self.source.options)
        except LoweringError:
            return None
        return machine.model(program, self.options)

    def traced(self, change: Callable[[jaxpr.ClosedJaxpr], jaxpr.ClosedJaxpr]) -> Case:
        """With a change of the function."""
        if self.source is None:
            return self
        source = dc.replace(self.source, closed=change(self.source.closed))
        return dc.replace(self, source=source, changed=True)

    def compiled(self, **options: Any) -> Case:
        """With other options of the compiler."""
        if self.source is None:
            return self
        options_then = dc.replace(self.source.options, **options)
        source = dc.replace(self.source, options=options_then)
        return dc.replace(self, source=source, changed=True)


@dc.dataclass(frozen=True, slots=True)
class Change:
    """Something to change.

    Attributes:
      rule: a word for it, the same whatever the program; of those with one word, one is enough.
      text: what to do.
      short: the same in a list of several.
      apply: what is modelled then.
      first: whether that must come before other changes.
      ipus: how many it shares the whole out to; None if it is about something else.
      line: of the user's, if it is about that alone.
      is_late: whether it is only to be tried where the others are not enough, as it costs the user
        more than time: precision, or IPUs.
      make_stronger: gives the same with more effect, to be tried next; None if there is no such.
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

    def excludes(self, other: Change) -> bool:
        """Whether only one of the two can be made: both cut the model, or are one rule's."""
        same = (self.rule, self.line) == (other.rule, other.line)
        return same or (self.first and other.first)


def cut_again(cut: variants.Recut | variants.Resharded, case: Case) -> Case:
    """The program, whose function is cut for another number of IPUs."""
    replicas = case.program.replicas // (case.source.options.instances if case.source else 1)
    changed = case.traced(lambda _: cut.closed)
    if cut.ipus > case.program.ipus:  # where more of them would be, nobody knows
        changed = dc.replace(changed, options=dc.replace(changed.options, ladder=()))
    return changed.compiled(num_ipus=cut.ipus * replicas, replicas=replicas)
