"""One view of loops, branches and tasks: their bodies, and their operands by role."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import TypeVar

from lowering.jaxpr import Atom, ClosedJaxpr, JaxprEqn, scan_counts
from lowering.ops.tasks import PipelineSpec, PlannedPipeline

T = TypeVar("T")

_NONE = slice(0, 0)


@dc.dataclass(frozen=True, slots=True)
class ControlFlow:
    """A `scan`, `while`, `cond`, loop of ours (`streams.repeat`) or task.

    A body takes its constants, then the loop variables, then an element of each stacked array; it
    gives the loop variables, then what is stacked. What comes before all of these among the
    operands steers: the index of a branch, or a trip count that is known at run time only.

    Attributes:
      eqn: the equation.
      bodies: in the order of its parameters: the condition of a `while` comes first.
      constants: which operands are the constants of each body.
      carried: which operands are loop variables.
      elements: which operands are stacked arrays.
      trips: how often a loop runs; None if values tell.
    """

    eqn: JaxprEqn
    bodies: tuple[ClosedJaxpr, ...]
    constants: tuple[slice, ...]
    carried: slice
    elements: slice
    trips: int | None = None

    @staticmethod
    def of(eqn: JaxprEqn) -> ControlFlow:
        """The view of an equation that is control flow."""
        return _READERS[eqn.primitive.name](eqn)

    @property
    def kind(self) -> str:
        """The primitive's name."""
        return self.eqn.primitive.name

    @property
    def is_loop(self) -> bool:
        """Whether a body may run more than once."""
        return self.kind in LOOPS

    @property
    def pipeline(self) -> PipelineSpec | PlannedPipeline | None:
        """What is known of a pipeline; None for any other control flow."""
        return self.eqn.params.get("pipeline")

    @property
    def stacked(self) -> int:
        """How many results are stacked; they are the last ones."""
        return len(self.eqn.outvars) - self.variables if self.kind == "scan" else 0

    @property
    def variables(self) -> int:
        """How many loop variables there are."""
        return len(self.eqn.invars[self.carried])

    def is_condition(self, number: int) -> bool:
        """Whether a body only says whether a loop goes on."""
        return self.kind == "while" and number == 0

    def arguments(self, number: int, operands: Sequence[T]) -> list[T]:
        """Those of the operands (or of what is known of each) that one of the bodies takes."""
        parts = (self.constants[number], self.carried, self.elements)
        return [operand for part in parts for operand in operands[part]]

    def rebuilt(
        self, bodies: Sequence[ClosedJaxpr], constants: Sequence[Sequence[Atom]]
    ) -> JaxprEqn:
        """A `while` or a loop of ours with other bodies and constants, and the same variables."""
        counts = map(len, constants)
        names = _PARAMETERS[self.kind]
        params = {**self.eqn.params, **dict(zip(names, (*bodies, *counts), strict=True))}
        steering = self.eqn.invars[: self.constants[0].start]
        leading = (atom for atoms in constants for atom in atoms)
        invars = [*steering, *leading, *self.eqn.invars[self.carried]]
        return self.eqn.replace(params=params, invars=invars)


def is_control_flow(eqn: JaxprEqn) -> bool:
    """Whether `ControlFlow.of` has a view of the equation."""
    return eqn.primitive.name in _READERS


def _scan(eqn: JaxprEqn) -> ControlFlow:
    first, variables = scan_counts(eqn)
    last = first + variables
    constants, carried, elements = slice(0, first), slice(first, last), slice(last, None)
    body, length = eqn.params["jaxpr"], eqn.params["length"]
    return ControlFlow(eqn, (body,), (constants,), carried, elements, length)


def _while(eqn: JaxprEqn) -> ControlFlow:
    bodies = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    first = eqn.params["cond_nconsts"]
    last = first + eqn.params["body_nconsts"]
    return ControlFlow(eqn, bodies, (slice(0, first), slice(first, last)), slice(last, None), _NONE)


def _cond(eqn: JaxprEqn) -> ControlFlow:
    branches = tuple(eqn.params["branches"])
    return ControlFlow(eqn, branches, (slice(1, None),) * len(branches), _NONE, _NONE)


def _repeat(eqn: JaxprEqn) -> ControlFlow:
    count = eqn.params["count"]
    first = 0 if count is not None else 1
    last = first + eqn.params["num_consts"]
    body = eqn.params["body"]
    return ControlFlow(eqn, (body,), (slice(first, last),), slice(last, None), _NONE, count)


def _task(eqn: JaxprEqn) -> ControlFlow:
    return ControlFlow(eqn, (eqn.params["body"],), (slice(0, None),), _NONE, _NONE)


_READERS: dict[str, Callable[[JaxprEqn], ControlFlow]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "ipu_repeat": _repeat,
    "ipu_task": _task,
}
LOOPS = ("scan", "while", "ipu_repeat")

_PARAMETERS = {
    "while": ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts"),
    "ipu_repeat": ("body", "num_consts"),
}
