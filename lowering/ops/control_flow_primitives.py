"""One view of loops, branches and tasks: their bodies, and their operands by role."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import TypeVar

from lowering.jaxprs import Atom, ClosedJaxpr, JaxprEqn, count_scan_constants_and_variables
from lowering.ops.tasks import PipelineSpec, PlannedPipeline

T = TypeVar("T")

_NONE = slice(0, 0)


@dc.dataclass(frozen=True, slots=True)
class ControlFlow:
    """A `scan`, `while`, `cond`, loop of ours (`streams.repeat_with_queues`) or task.

    A body takes its constants, then the loop variables, then an element of each stacked array; it
    returns the loop variables, then the results to stack. The operands before all of these steer:
    the index of a branch, or a trip count that is known at run time only.

    Attributes:
      eqn: the equation.
      bodies: in the order of its parameters: the condition of a `while` comes first.
      constants: for each body, the slice of operands that are its constants.
      carried: the slice of operands that are loop variables.
      elements: the slice of operands that are stacked arrays.
      trips: the number of iterations of a loop; None if it is known at run time only.
    """

    eqn: JaxprEqn
    bodies: tuple[ClosedJaxpr, ...]
    constants: tuple[slice, ...]
    carried: slice
    elements: slice
    trips: int | None = None

    @staticmethod
    def view_of_equation(eqn: JaxprEqn) -> ControlFlow:
        """Returns the view of an equation that is control flow."""
        return _READERS[eqn.primitive.name](eqn)

    @property
    def kind(self) -> str:
        """The name of the primitive."""
        return self.eqn.primitive.name

    @property
    def is_loop(self) -> bool:
        """Returns whether a body may run more than once."""
        return self.kind in LOOPS

    @property
    def pipeline(self) -> PipelineSpec | PlannedPipeline | None:
        """The specification or plan of a pipeline; None for any other control flow."""
        return self.eqn.params.get("pipeline")

    @property
    def num_stacked_results(self) -> int:
        """The number of stacked results; they are the last ones."""
        return len(self.eqn.outvars) - self.num_loop_variables if self.kind == "scan" else 0

    @property
    def num_loop_variables(self) -> int:
        """The number of loop variables."""
        return len(self.eqn.invars[self.carried])

    def is_condition(self, body_index: int) -> bool:
        """Returns whether a body computes the condition of a `while`."""
        return self.kind == "while" and body_index == 0

    def select_body_operands(self, body_index: int, operands: Sequence[T]) -> list[T]:
        """Selects the operands (or values that belong to them) that one body takes."""
        parts = (self.constants[body_index], self.carried, self.elements)
        return [operand for part in parts for operand in operands[part]]

    def params_with_bodies(
        self, bodies: Sequence[ClosedJaxpr], num_constants: Sequence[int]
    ) -> dict[str, object]:
        """Returns the parameters for other bodies, with other numbers of constants.

        It is for a `while`, an `ipu_repeat` or a `cond`, whose branches share their constants.
        """
        if self.kind == "cond":
            return {**self.eqn.params, "branches": tuple(bodies)}
        names = _PARAMETERS[self.kind]
        return {**self.eqn.params, **dict(zip(names, (*bodies, *num_constants), strict=True))}

    def replace_bodies_and_constants(
        self, bodies: Sequence[ClosedJaxpr], constants: Sequence[Sequence[Atom]]
    ) -> JaxprEqn:
        """Returns the `while` or `ipu_repeat` with other bodies and constants."""
        params = self.params_with_bodies(bodies, [*map(len, constants)])
        steering = self.eqn.invars[: self.constants[0].start]
        leading = (atom for atoms in constants for atom in atoms)
        invars = [*steering, *leading, *self.eqn.invars[self.carried]]
        return self.eqn.replace(params=params, invars=invars)


def is_control_flow(eqn: JaxprEqn) -> bool:
    """Returns whether `ControlFlow` has a view of the equation."""
    return eqn.primitive.name in _READERS


def _view_scan(eqn: JaxprEqn) -> ControlFlow:
    first, variables = count_scan_constants_and_variables(eqn)
    last = first + variables
    constants, carried, elements = slice(0, first), slice(first, last), slice(last, None)
    body, length = eqn.params["jaxpr"], eqn.params["length"]
    return ControlFlow(eqn, (body,), (constants,), carried, elements, length)


def _view_while(eqn: JaxprEqn) -> ControlFlow:
    bodies = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    first = eqn.params["cond_nconsts"]
    last = first + eqn.params["body_nconsts"]
    return ControlFlow(eqn, bodies, (slice(0, first), slice(first, last)), slice(last, None), _NONE)


def _view_cond(eqn: JaxprEqn) -> ControlFlow:
    branches = tuple(eqn.params["branches"])
    return ControlFlow(eqn, branches, (slice(1, None),) * len(branches), _NONE, _NONE)


def _view_repeat(eqn: JaxprEqn) -> ControlFlow:
    count = eqn.params["count"]
    first = 0 if count is not None else 1
    last = first + eqn.params["num_consts"]
    body = eqn.params["body"]
    return ControlFlow(eqn, (body,), (slice(first, last),), slice(last, None), _NONE, count)


def _view_task(eqn: JaxprEqn) -> ControlFlow:
    return ControlFlow(eqn, (eqn.params["body"],), (slice(0, None),), _NONE, _NONE)


_READERS: dict[str, Callable[[JaxprEqn], ControlFlow]] = {
    "scan": _view_scan,
    "while": _view_while,
    "cond": _view_cond,
    "ipu_repeat": _view_repeat,
    "ipu_task": _view_task,
}
LOOPS = ("scan", "while", "ipu_repeat")

_PARAMETERS = {
    "while": ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts"),
    "ipu_repeat": ("body", "num_consts"),
}
