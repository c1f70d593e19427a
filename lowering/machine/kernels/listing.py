"""A kernel's jaxpr as the cost formulas read it: a flat list, calls opened, values numbered."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lowering import marks
from lowering.avals import dtype_name, shape_of
from lowering.control_flow import ControlFlow, is_control_flow
from lowering.jaxpr import (
    Atom,
    Aval,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    call_body,
    called_from,
    is_jaxpr,
    name_stack,
    sub_jaxprs,
)
from lowering.machine.cost import Operation, Shape
from lowering.machine.kernels.directions import Directions, Each, of_body, of_equation, own
from lowering.machine.kernels.items import Block, Choice, Entry, Item, Listing, Loop, belonging
from lowering.machine.kernels.iterations import Turns
from lowering.machine.planner.side_by_side import MULTI_CONV

PLANNED = ("dot_general", "conv_general_dilated")
"""Primitives that the planner plans."""

CONSTANT = "constant"
"""What stands for an equation where an array is closed over."""

_NUMBERS = ("bfloat", "bool", "float", "int", "uint")
_CHEAPER_WITH_CONSTANTS = ("div", "pow", "rem")
_SAME_NUMBER = ("broadcast_in_dim", "convert_element_type", "reshape")
_OTHER_CALLS = {"composite": "jaxpr", "custom_vmap_call": "call"}


@dc.dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the planner is told about the operations of a kernel.

    Attributes:
      matmul_proportion: `availableMemoryProportion` of matrix products, 0 to 1.
      convolution_proportion: the same of convolutions.
      matmul_partials: the dtype of their sums; None for the default.
      convolution_partials: the same of convolutions.
      cholesky_block: how wide the blocks of Cholesky's factors are; None for the default.
      triangular_block: the same of triangular systems.
    """

    matmul_proportion: float | None = None
    convolution_proportion: float | None = None
    matmul_partials: str | None = None
    convolution_partials: str | None = None
    cholesky_block: int | None = None
    triangular_block: int | None = None

    def of(self, name: str) -> tuple[float | None, str | None]:
        """Proportion and partials of one primitive."""
        if name == "dot_general":
            return self.matmul_proportion, self.matmul_partials
        if name == "conv_general_dilated":
            return self.convolution_proportion, self.convolution_partials
        return None, None

    def block_of(self, name: str) -> tuple[tuple[str, int], ...]:
        """The parameter that says how wide the blocks of one primitive are."""
        blocks = {"cholesky": self.cholesky_block, "triangular_solve": self.triangular_block}
        block = blocks.get(name)
        return () if block is None else (("block", block),)


def shape(aval: Aval) -> Shape:
    """Extents and element type of an aval."""
    return Shape(shape_of(aval), dtype_name(aval))


def marks_of(jaxpr: Jaxpr) -> tuple[tuple[Any, ...], ...]:
    """What scopes say of products and outlined functions, which a jaxpr's structure does not."""
    products: list[tuple[Any, ...]] = []
    for eqn in jaxpr.eqns:
        block = marks.read(name_stack(eqn)).block
        if block is not None:
            products.append((block, marks.read(name_stack(eqn)).backward))
        if eqn.primitive.name in PLANNED:
            mark = marks.read(name_stack(eqn))
            products.append((mark.partials_type, mark.backward, mark.multi_conv))
        for inner in sub_jaxprs(eqn):
            products.extend(marks_of(inner))
    return tuple(products)


def list_operations(
    closed: ClosedJaxpr,
    options: PlanOptions,
    around: JaxprEqn | None = None,
    turns: Mapping[int, Turns] = MappingProxyType({}),
    directions: Directions = None,
) -> Listing:
    """The operations of a jaxpr in order, calls opened up.

    Args:
      closed: the jaxpr.
      options: what the planner is told.
      around: the equation whose body it is; its line is that of equations which have none of the
        user's, since a library has made them.
      turns: the branches that iterations of loops take, by the identity of the equation.
      directions: of the equations.
    """
    lister = _Lister(options, turns)
    known: dict[Any, int | None] = {}
    lister.constants(known, closed.jaxpr.constvars)
    operands = tuple(lister.number(known, var) for var in closed.jaxpr.invars)
    results = tuple(lister.equations(closed, known, around, directions))
    return Listing(tuple(lister.shapes), operands, results, tuple(lister.items))


class _Lister:
    def __init__(self, options: PlanOptions, turns: Mapping[int, Turns]) -> None:
        self._options, self._turns = options, turns
        self.shapes: list[Shape] = []
        self.items: list[Entry] = []
        self._literals: dict[Any, float | None] = {}
        self._calls = 0

    def number(self, known: dict[Any, int | None], var: Any) -> int:
        """A value that has none yet gets one."""
        self.shapes.append(shape(var.aval))
        known[var] = number = len(self.shapes) - 1
        return number

    def constants(self, known: dict[Any, int | None], constvars: Sequence[Any]) -> None:
        """Arrays that a call closes over: made by nothing, and there from where they are named."""
        for var in constvars:
            number = self.number(known, var)
            operation = Operation(CONSTANT, (), (self.shapes[number],))
            self.items.append(Item((operation,), (), (number,), None))

    def equations(
        self,
        closed: ClosedJaxpr,
        known: dict[Any, int | None],
        around: JaxprEqn | None,
        directions: Directions,
        within: bool = False,
        scope: str = "",
        functions: tuple[str, ...] = (),
        block: Block | None = None,
    ) -> list[int | None]:
        """Lists the equations of a jaxpr whose operands are known; gives its results.

        Those of a call `within` a backward pass belong to it, too; those without a line of the
        user's have that of what is `around` them, and its scope. `functions` are those around them,
        `block` is the outlined one, and which of its calls.
        """
        for place, inner in enumerate(closed.jaxpr.eqns):
            each = of_equation(directions, place)
            eqn = called_from(inner, around, closed.jaxpr)
            stack = name_stack(eqn)
            backward = within or marks.read(stack).backward
            named = marks.within(scope, "" if _is_librarys(eqn, around) else marks.scopes(stack))
            body, operands = _called(eqn)
            own_block = block or self._block(stack, is_call=body is not None)
            if body is not None and len(body.jaxpr.invars) == len(operands):
                names = body.jaxpr.invars
                self._literals.update(zip(names, map(self._literal, operands), strict=True))
                reads = [_look_up(known, atom) for atom in operands]
                inside = dict(zip(names, reads, strict=True))
                self.constants(inside, body.jaxpr.constvars)
                inner_functions = (*functions, str(eqn.params.get("name", "")))
                results = self.equations(
                    body,
                    inside,
                    eqn,
                    of_body(each, 0),
                    backward,
                    named,
                    inner_functions,
                    own_block,
                )
                known.update(zip(eqn.outvars, results, strict=True))
                continue
            reads = tuple(_look_up(known, atom) for atom in eqn.invars)
            writes = tuple(self.number(known, var) for var in eqn.outvars)
            if is_control_flow(eqn):
                turns = self._turns.get(id(inner))
                entry = self._control_flow(eqn, reads, writes, turns, each)
            else:
                entry = Item(
                    operations=(self._operation(eqn),),
                    reads=reads,
                    writes=writes,
                    eqn=eqn,
                    direction=own(each),
                    functions=functions,
                )
            self.items.append(belonging(entry, backward, named, own_block))
        return [_look_up(known, atom) for atom in closed.jaxpr.outvars]

    def _block(self, stack: str, is_call: bool) -> Block | None:
        """The call of an outlined function that an equation is, or is a part of."""
        name = marks.read(stack).block
        if name is None:
            return None
        self._calls += is_call
        return name, self._calls if is_call else 0

    def _control_flow(
        self,
        eqn: JaxprEqn,
        reads: tuple[int | None, ...],
        writes: tuple[int, ...],
        turns: Turns | None,
        each: Each,
    ) -> Loop | Choice:
        flow = ControlFlow.of(eqn)
        bodies = tuple(
            list_operations(body, self._options, eqn, self._turns, of_body(each, number))
            for number, body in enumerate(flow.bodies)
        )
        first = flow.constants[0].start
        if not flow.is_loop:
            return Choice(bodies, reads[first:], writes, eqn, turns)
        numbers = range(-first, len(reads) - first)
        inner = (flow.arguments(number, numbers) for number in range(len(bodies)))
        carried = ((operand, i) for i, operand in enumerate(numbers[flow.carried]))
        return Loop(
            bodies,
            flow.trips,
            reads[first:],
            tuple(map(tuple, inner)),
            tuple(carried),
            writes,
            eqn,
            own(each),
        )

    def _literal(self, atom: Atom) -> float | None:
        """The number that a value is everywhere, if the jaxpr says so."""
        if not isinstance(atom, Literal):
            return self._literals.get(atom)
        dtype = dtype_name(atom.aval)
        is_number = dtype != "float0" and dtype.startswith(_NUMBERS) and not shape_of(atom.aval)
        return float(atom.val) if is_number else None

    def _operation(self, eqn: JaxprEqn) -> Operation:
        name = eqn.primitive.name
        literals = tuple(map(self._literal, eqn.invars))
        if name in _SAME_NUMBER:
            self._literals[eqn.outvars[0]] = literals[0]
        proportion, partials = self._options.of(name)
        if name in PLANNED:
            partials = marks.read(name_stack(eqn)).partials_type or partials
        return Operation(
            name=name,
            operands=tuple(shape(atom.aval) for atom in eqn.invars),
            results=tuple(shape(var.aval) for var in eqn.outvars),
            params=(
                *((k, v) for k, v in eqn.params.items() if _is_plain(v)),
                *self._options.block_of(name),
                *_side_by_side(eqn),
            ),
            partials=partials,
            memory_proportion=proportion,
            literals=literals if name in _CHEAPER_WITH_CONSTANTS and any(literals) else (),
        )


def _side_by_side(eqn: JaxprEqn) -> tuple[tuple[str, Any], ...]:
    """The options of the multi-convolution that a convolution belongs to, if it is parallel."""
    options = marks.read(name_stack(eqn)).multi_conv
    if eqn.primitive.name != "conv_general_dilated" or options is None:
        return ()
    return () if ("planType", "serial") in options else ((MULTI_CONV, options),)


def _is_librarys(eqn: JaxprEqn, around: JaxprEqn | None) -> bool:
    """Whether an equation has no frames but those of what is around it."""
    return around is not None and eqn.source_info.traceback is around.source_info.traceback


def _called(eqn: JaxprEqn) -> tuple[ClosedJaxpr | None, Sequence[Atom]]:
    """The body that an equation runs once, if it does so, and what that reads."""
    reads = eqn.invars
    if eqn.primitive.name == "custom_linear_solve":  # the other bodies are for derivatives
        lengths = eqn.params["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        operands = [*reads[first : first + lengths.solve], *reads[sum(lengths) :]]
        return eqn.params["jaxprs"].solve, operands
    if eqn.primitive.name in _OTHER_CALLS:
        return eqn.params[_OTHER_CALLS[eqn.primitive.name]], reads
    return call_body(eqn), reads


def _look_up(known: dict[Any, int | None], atom: Atom) -> int | None:
    return None if isinstance(atom, Literal) else known[atom]


def _is_plain(value: Any) -> bool:
    """Whether a parameter can be part of a key: hashable, and no jaxpr."""
    if is_jaxpr(value) or callable(value):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return not (isinstance(value, tuple) and any(map(is_jaxpr, value)))
