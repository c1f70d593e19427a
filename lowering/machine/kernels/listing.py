"""A kernel's jaxpr as a flat list of operations, calls inlined and values numbered."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from lowering import marks
from lowering.jaxprs import (
    Atom,
    Aval,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    add_caller_frames,
    body_of_call,
    dtype_name,
    is_jaxpr,
    name_stack,
    shape_of,
)
from lowering.machine.cost import Operation, Shape
from lowering.machine.kernels.directions import (
    Directions,
    EquationDirections,
    direction_of_equation,
    directions_of_body,
    main_direction,
)
from lowering.machine.kernels.items import Block, Choice, Entry, Item, Listing, Loop, assign_scope
from lowering.machine.kernels.iterations import BranchPerIteration
from lowering.machine.planner.multi_convolution import MULTI_CONV
from lowering.ops import ControlFlow, function_of_call, is_control_flow

PLANNED = ("dot_general", "conv_general_dilated")
"""Primitives that the planner plans."""

CONSTANT = "constant"
"""The name of the operation that stands for an array that a jaxpr closes over."""

_BLOCKED = {"cholesky": "cholesky_block", "triangular_solve": "triangular_block"}
_NUMBER_DTYPES = ("bfloat", "bool", "float", "int", "uint")
_CHEAPER_WITH_CONSTANTS = ("div", "pow", "rem")
_KEEP_THE_NUMBER = ("broadcast_in_dim", "convert_element_type", "reshape")
_BODY_OF_CALL = {"composite": "jaxpr", "custom_vmap_call": "call"}


@dc.dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of the planner for the operations of a kernel.

    Attributes:
      matmul_proportion: `availableMemoryProportion` of matrix products, 0 to 1.
      convolution_proportion: the same for convolutions.
      matmul_partials: the dtype of their sums; None for the default.
      convolution_partials: the same for convolutions.
      cholesky_block: the width of the blocks of Cholesky's factors; None for the default.
      triangular_block: the same for triangular systems.
    """

    matmul_proportion: float | None = None
    convolution_proportion: float | None = None
    matmul_partials: str | None = None
    convolution_partials: str | None = None
    cholesky_block: int | None = None
    triangular_block: int | None = None

    @staticmethod
    def act_on(name: str) -> bool:
        """Returns whether any of these options changes the cost of a primitive."""
        return name in PLANNED or name in _BLOCKED

    @property
    def without_proportions(self) -> PlanOptions:
        """The options without those on memory."""
        return dc.replace(self, matmul_proportion=None, convolution_proportion=None)

    def proportion_of(self, name: str) -> float | None:
        """Returns the memory proportion of one primitive."""
        return self.matmul_proportion if name == "dot_general" else self.convolution_proportion

    def partials_of(self, name: str) -> str | None:
        """Returns the partials type of one primitive; None for one that is not planned."""
        if name == "dot_general":
            return self.matmul_partials
        return self.convolution_partials if name == "conv_general_dilated" else None

    def block_parameter_of(self, name: str) -> tuple[tuple[str, int], ...]:
        """Returns the parameter that sets the width of the blocks of one primitive."""
        parameter = _BLOCKED.get(name)
        block = getattr(self, parameter) if parameter else None
        return () if block is None else (("block", block),)


def shape_of_aval(aval: Aval) -> Shape:
    """Returns the extents and the element type of an aval."""
    return _share_shape(shape_of(aval), dtype_name(aval))


@functools.lru_cache(maxsize=1 << 14)
def _share_shape(dims: tuple[int, ...], dtype: str) -> Shape:
    """Returns the first of equal shapes, so that few comparisons look into them."""
    return Shape(dims, dtype)


def list_operations(
    closed: ClosedJaxpr,
    options: PlanOptions,
    caller: JaxprEqn | None = None,
    branches: Mapping[int, BranchPerIteration] = MappingProxyType({}),
    directions: Directions = None,
    around: str = "",
) -> Listing:
    """Lists the operations of a jaxpr in order, with calls inlined.

    Args:
      closed: the jaxpr.
      options: the options of the planner; the shares of memory are for `find_proportions`.
      caller: the equation whose body it is; equations made by a library have no line of the
        user's and take its line.
      branches: the branches that iterations of loops take, by the identity of the equation.
      directions: the directions of the equations.
      around: the name stack of the equations whose bodies it is in; innermost scopes win.
    """
    lister = _Lister(options, branches, around)
    number_of_var: dict[Any, int | None] = {}
    lister.list_constants(number_of_var, closed.jaxpr.constvars)
    operands = tuple(lister.number_value(number_of_var, var) for var in closed.jaxpr.invars)
    results = tuple(lister.list_equations(closed, number_of_var, caller, directions))
    return Listing(tuple(lister.shapes), operands, results, tuple(lister.items))


class _Lister:
    def __init__(
        self, options: PlanOptions, turns: Mapping[int, BranchPerIteration], around: str
    ) -> None:
        self._options, self._turns, self._around = options, turns, around
        self.shapes: list[Shape] = []
        self.items: list[Entry] = []
        self._literals: dict[Any, float | None] = {}
        self._calls = 0

    def number_value(self, number_of_var: dict[Any, int | None], var: Any) -> int:
        """Gives a number to a variable that has none yet."""
        self.shapes.append(shape_of_aval(var.aval))
        number_of_var[var] = number = len(self.shapes) - 1
        return number

    def list_constants(
        self, number_of_var: dict[Any, int | None], constvars: Sequence[Any]
    ) -> None:
        """Lists the arrays that a call closes over as constants."""
        for var in constvars:
            number = self.number_value(number_of_var, var)
            operation = Operation(CONSTANT, (), (self.shapes[number],))
            self.items.append(Item((operation,), (), (number,), None))

    def list_equations(
        self,
        closed: ClosedJaxpr,
        number_of_var: dict[Any, int | None],
        caller: JaxprEqn | None,
        directions: Directions,
        in_backward: bool = False,
        scope: str = "",
        functions: tuple[str, ...] = (),
        block: Block | None = None,
    ) -> list[int | None]:
        """Lists the equations of a jaxpr with numbered operands; returns its results.

        Equations of a call `in_backward` belong to the backward pass, too; those without a line of
        the user's have that of the `caller`, and its scope. `functions` are the names of the
        functions around them, `block` is the outlined one, and which of its calls.
        """
        for position, original in enumerate(closed.jaxpr.eqns):
            direction = direction_of_equation(directions, position)
            eqn = add_caller_frames(original, caller, closed.jaxpr)
            stack = name_stack(eqn)
            backward = in_backward or marks.read_marks(stack).backward
            full_scope = marks.join_user_scopes(
                scope, "" if _is_made_by_library(eqn, caller) else marks.user_scopes(stack)
            )
            body, operands = _body_to_inline(eqn)
            own_block = block or self._call_of_outlined(stack, is_call=body is not None)
            if body is not None and len(body.jaxpr.invars) == len(operands):
                names = body.jaxpr.invars
                self._literals.update(
                    zip(names, map(self._constant_value_of, operands), strict=True)
                )
                reads = [_look_up_number(number_of_var, atom) for atom in operands]
                body_numbers = dict(zip(names, reads, strict=True))
                self.list_constants(body_numbers, body.jaxpr.constvars)
                inner_functions = (*functions, function_of_call(eqn))
                with self._inside_scopes(stack):
                    results = self.list_equations(
                        body,
                        body_numbers,
                        eqn,
                        directions_of_body(direction, 0),
                        backward,
                        full_scope,
                        inner_functions,
                        own_block,
                    )
                number_of_var.update(zip(eqn.outvars, results, strict=True))
                continue
            reads = tuple(_look_up_number(number_of_var, atom) for atom in eqn.invars)
            writes = tuple(self.number_value(number_of_var, var) for var in eqn.outvars)
            if is_control_flow(eqn):
                turns = self._turns.get(id(original))
                with self._inside_scopes(stack):
                    entry = self._list_control_flow(eqn, reads, writes, turns, direction)
            else:
                entry = Item(
                    operations=(self._describe_operation(eqn),),
                    reads=reads,
                    writes=writes,
                    eqn=eqn,
                    direction=main_direction(direction),
                    functions=functions,
                    fuses_lines=self._read_marks(eqn).fuses_lines,
                )
            self.items.append(assign_scope(entry, backward, full_scope, own_block))
        return [_look_up_number(number_of_var, atom) for atom in closed.jaxpr.outvars]

    @contextlib.contextmanager
    def _inside_scopes(self, stack: str) -> Generator[None]:
        """Lists the bodies of an equation with what its scopes ask for."""
        around = self._around
        self._around = marks.join_name_stacks(around, stack)
        yield
        self._around = around

    def _read_marks(self, eqn: JaxprEqn) -> marks.Marks:
        """Returns the marks of an equation, of scopes around the bodies that it is in as well."""
        return marks.read_marks(marks.join_name_stacks(self._around, name_stack(eqn)))

    def _call_of_outlined(self, stack: str, is_call: bool) -> Block | None:
        """Returns the call of an outlined function that an equation is, or is part of."""
        name = marks.read_marks(stack).block
        if name is None:
            return None
        self._calls += is_call
        return name, self._calls if is_call else 0

    def _list_control_flow(
        self,
        eqn: JaxprEqn,
        reads: tuple[int | None, ...],
        writes: tuple[int, ...],
        branches: BranchPerIteration | None,
        directions: EquationDirections,
    ) -> Loop | Choice:
        flow = ControlFlow.view_of_equation(eqn)
        bodies = tuple(
            list_operations(
                body,
                self._options,
                eqn,
                self._turns,
                directions_of_body(directions, number),
                self._around,
            )
            for number, body in enumerate(flow.bodies)
        )
        first = flow.constants[0].start
        if not flow.is_loop:
            return Choice(bodies, reads[first:], writes, eqn, branches)
        numbers = range(-first, len(reads) - first)
        operands_of_body = (
            flow.select_body_operands(number, numbers) for number in range(len(bodies))
        )
        carried = ((operand, i) for i, operand in enumerate(numbers[flow.carried]))
        return Loop(
            bodies,
            flow.trips,
            reads[first:],
            tuple(map(tuple, operands_of_body)),
            tuple(carried),
            writes,
            eqn,
            main_direction(directions),
        )

    def _constant_value_of(self, atom: Atom) -> float | None:
        """Returns the number that every element of a value is, if the jaxpr says so."""
        if not isinstance(atom, Literal):
            return self._literals.get(atom)
        dtype = dtype_name(atom.aval)
        is_number = (
            dtype != "float0" and dtype.startswith(_NUMBER_DTYPES) and not shape_of(atom.aval)
        )
        return float(atom.val) if is_number else None

    def _describe_operation(self, eqn: JaxprEqn) -> Operation:
        name = eqn.primitive.name
        literals = tuple(map(self._constant_value_of, eqn.invars))
        if name in _KEEP_THE_NUMBER:
            self._literals[eqn.outvars[0]] = literals[0]
        partials = self._options.partials_of(name)
        if name in PLANNED:
            partials = self._read_marks(eqn).partials_type or partials
        operation = Operation(
            name=name,
            operands=tuple(shape_of_aval(atom.aval) for atom in eqn.invars),
            results=tuple(shape_of_aval(var.aval) for var in eqn.outvars),
            params=(
                *((k, v) for k, v in eqn.params.items() if _can_be_part_of_key(v)),
                *self._options.block_parameter_of(name),
                *self._multi_conv_params(eqn),
            ),
            partials=partials,
            literals=literals if name in _CHEAPER_WITH_CONSTANTS and any(literals) else (),
        )
        return _share_operation(operation)

    def _multi_conv_params(self, eqn: JaxprEqn) -> tuple[tuple[str, Any], ...]:
        """Returns the options of the parallel multi-convolution that a convolution belongs to."""
        options = self._read_marks(eqn).multi_conv
        if eqn.primitive.name != "conv_general_dilated" or options is None:
            return ()
        return () if ("planType", "serial") in options else ((MULTI_CONV, options),)


@functools.lru_cache(maxsize=1 << 14)
def _share_operation(operation: Operation) -> Operation:
    """Returns the first of equal operations, so that few comparisons look into them."""
    return operation


def _is_made_by_library(eqn: JaxprEqn, caller: JaxprEqn | None) -> bool:
    """Returns whether an equation has only the stack frames of the equation that calls it."""
    return caller is not None and eqn.source_info.traceback is caller.source_info.traceback


def _body_to_inline(eqn: JaxprEqn) -> tuple[ClosedJaxpr | None, Sequence[Atom]]:
    """Returns the body that an equation runs just once, if it has one, and its operands."""
    reads = eqn.invars
    if eqn.primitive.name == "custom_linear_solve":  # the other bodies are for derivatives
        lengths = eqn.params["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        operands = [*reads[first : first + lengths.solve], *reads[sum(lengths) :]]
        return eqn.params["jaxprs"].solve, operands
    if eqn.primitive.name in _BODY_OF_CALL:
        return eqn.params[_BODY_OF_CALL[eqn.primitive.name]], reads
    return body_of_call(eqn), reads


def _look_up_number(number_of_var: dict[Any, int | None], atom: Atom) -> int | None:
    return None if isinstance(atom, Literal) else number_of_var[atom]


def _can_be_part_of_key(value: Any) -> bool:
    """Returns whether a parameter is hashable and not a jaxpr, so that it can be part of a key."""
    if is_jaxpr(value) or callable(value):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return not (isinstance(value, tuple) and any(map(is_jaxpr, cast("tuple[object, ...]", value))))
