"""A kernel's jaxpr as the cost formulas read it: a flat list, calls opened, values numbered."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

from lowering import marks
from lowering.jaxpr import (
    Atom,
    Aval,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    at_line_of,
    call_body,
    dtype_name,
    is_jaxpr,
    name_stack,
    shape_of,
    sub_jaxprs,
    user_line,
)
from lowering.machine.cost import Operation, Shape

PLANNED = ("dot_general", "conv_general_dilated")
"""Primitives that the planner plans."""

CONSTANT = "constant"
"""What stands for an equation where an array is closed over."""

_CHEAPER_WITH_CONSTANTS = ("div", "pow", "rem")
_SAME_NUMBER = ("broadcast_in_dim", "convert_element_type", "reshape")
_OTHER_CALLS = {"composite": "jaxpr", "custom_vmap_call": "call"}


@dc.dataclass(frozen=True, slots=True, eq=False)
class Item:
    """Operations that run as one: an equation, or a fused chain of elementwise ones.

    Attributes:
      operations: what runs; the last one's results are the item's.
      reads: the values that it reads, each operand of each operation; None for literals and for
        what another operation of the chain gives.
      writes: the values that it writes.
      eqn: the (last) equation, for its line; None for a constant.
      backward: whether it belongs to a backward pass.
    """

    operations: tuple[Operation, ...]
    reads: tuple[int | None, ...]
    writes: tuple[int, ...]
    eqn: JaxprEqn | None
    backward: bool = False

    @property
    def name(self) -> str:
        """Its primitives."""
        return " ".join(operation.name for operation in self.operations)

    @property
    def title(self) -> str:
        """What reports call it."""
        result = self.operations[-1].results
        title = f"{self.name} {describe(result[0])}" if result else self.name
        return f"{title}, backward" if self.backward else title

    @property
    def origin(self) -> str:
        """The user's `file:line`, or ""."""
        return user_line(self.eqn) if self.eqn is not None else ""


@dc.dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop inside a kernel.

    Attributes:
      bodies: what one iteration runs: the body, and a condition before it if there is one.
      trips: how often; None if only values tell.
      reads: what its operands are outside, in the order of `inner`.
      inner: for each body, which operand of the loop each of its operands is.
      carried: pairs (operand of the loop, result of the last body) that are one buffer.
      writes: its results: those of the last body, stacked ones after carried ones.
    """

    bodies: tuple[Listing, ...]
    trips: int | None
    reads: tuple[int | None, ...]
    inner: tuple[tuple[int, ...], ...]
    carried: tuple[tuple[int, int], ...]
    writes: tuple[int, ...]
    eqn: JaxprEqn


@dc.dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Branches inside a kernel, of which one runs; all read the same."""

    branches: tuple[Listing, ...]
    reads: tuple[int | None, ...]
    writes: tuple[int, ...]
    eqn: JaxprEqn


@dc.dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """A kernel: what it takes, does and gives.

    Attributes:
      shapes: of every value; those that are no operands and that nothing makes are constants.
      operands: the values it starts with.
      results: the values it ends with; None for a literal.
      items: in order.
    """

    shapes: tuple[Shape, ...]
    operands: tuple[int, ...]
    results: tuple[int | None, ...]
    items: tuple[Item | Loop | Choice, ...]


@dc.dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the planner is told about the operations of a kernel.

    Attributes:
      matmul_proportion: `availableMemoryProportion` of matrix products, 0 to 1.
      convolution_proportion: the same of convolutions.
      matmul_partials: the dtype of their sums; None for the default.
      convolution_partials: the same of convolutions.
    """

    matmul_proportion: float | None = None
    convolution_proportion: float | None = None
    matmul_partials: str | None = None
    convolution_partials: str | None = None

    def of(self, name: str) -> tuple[float | None, str | None]:
        """Proportion and partials of one primitive."""
        if name == "dot_general":
            return self.matmul_proportion, self.matmul_partials
        if name == "conv_general_dilated":
            return self.convolution_proportion, self.convolution_partials
        return None, None


def shape(aval: Aval) -> Shape:
    """Extents and element type of an aval."""
    return Shape(shape_of(aval), dtype_name(aval))


def describe(tensor: Shape) -> str:
    """As `float16[128,1024]`."""
    return f"{tensor.dtype}[{','.join(map(str, tensor.dims))}]"


def marks_of(jaxpr: Jaxpr) -> tuple[tuple[str | None, bool], ...]:
    """Partials and direction of the products in a jaxpr, which its structure does not tell."""
    found: list[tuple[str | None, bool]] = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in PLANNED:
            read = marks.read(name_stack(eqn))
            found.append((read.partials_type, read.backward))
        for inner in sub_jaxprs(eqn):
            found.extend(marks_of(inner))
    return tuple(found)


def list_operations(
    closed: ClosedJaxpr, options: PlanOptions, around: JaxprEqn | None = None
) -> Listing:
    """The operations of a jaxpr in order, calls opened up.

    Args:
      closed: the jaxpr.
      options: what the planner is told.
      around: the equation whose body it is; its line is that of equations which have none of the
        user's, since a library has made them.
    """
    return _Lister(options).list(closed, around)


class _Lister:
    def __init__(self, options: PlanOptions) -> None:
        self._options = options
        self._shapes: list[Shape] = []
        self._items: list[Item | Loop | Choice] = []
        self._literals: dict[Any, float | None] = {}

    def list(self, closed: ClosedJaxpr, around: JaxprEqn | None) -> Listing:
        jaxpr = closed.jaxpr
        known: dict[Any, int | None] = {}
        self._constants(known, jaxpr.constvars)
        operands = [self._number(known, var) for var in jaxpr.invars]
        results = self._open(closed, known, around)
        return Listing(tuple(self._shapes), tuple(operands), tuple(results), tuple(self._items))

    def _number(self, known: dict[Any, int | None], var: Any) -> int:
        self._shapes.append(shape(var.aval))
        known[var] = number = len(self._shapes) - 1
        return number

    def _constants(self, known: dict[Any, int | None], constvars: Sequence[Any]) -> None:
        """Arrays that a call closes over: made by nothing, and there from where they are named."""
        for var in constvars:
            number = self._number(known, var)
            operation = Operation(CONSTANT, (), (self._shapes[number],))
            self._items.append(Item((operation,), (), (number,), None))

    def _open(
        self,
        closed: ClosedJaxpr,
        known: dict[Any, int | None],
        around: JaxprEqn | None,
        within: bool = False,
    ) -> list[int | None]:
        """Lists the equations of a jaxpr whose operands are known; gives its results.

        Those of a call `within` a backward pass belong to it, too; those without a line of the
        user's have that of what is `around` them.
        """
        for inner in closed.jaxpr.eqns:
            eqn = at_line_of(inner, around, closed.jaxpr)
            backward = within or marks.read(name_stack(eqn)).backward
            body, given = _called(eqn)
            if body is not None and len(body.jaxpr.invars) == len(given):
                names = body.jaxpr.invars
                self._literals.update(zip(names, map(self._literal, given), strict=True))
                reads = [_look_up(known, atom) for atom in given]
                inside = dict(zip(names, reads, strict=True))
                self._constants(inside, body.jaxpr.constvars)
                results = self._open(body, inside, eqn, backward)
                known.update(zip(eqn.outvars, results, strict=True))
                continue
            reads = tuple(_look_up(known, atom) for atom in eqn.invars)
            writes = tuple(self._number(known, var) for var in eqn.outvars)
            make = _BRANCHES.get(eqn.primitive.name, self._operation)
            item = make(eqn, reads, writes, self._options)
            self._items.append(_in_backward_pass(item) if backward else item)
        return [_look_up(known, atom) for atom in closed.jaxpr.outvars]

    def _literal(self, atom: Atom) -> float | None:
        """The number that a value is everywhere, if the jaxpr says so."""
        if not isinstance(atom, Literal):
            return self._literals.get(atom)
        is_number = not shape_of(atom.aval) and not dtype_name(atom.aval).startswith("complex")
        return float(atom.val) if is_number else None

    def _operation(
        self,
        eqn: JaxprEqn,
        reads: tuple[int | None, ...],
        writes: tuple[int, ...],
        options: PlanOptions,
    ) -> Item:
        literals = tuple(map(self._literal, eqn.invars))
        if eqn.primitive.name in _SAME_NUMBER:
            self._literals[eqn.outvars[0]] = literals[0]
        if eqn.primitive.name not in _CHEAPER_WITH_CONSTANTS or not any(literals):
            literals = ()
        return Item((_operation(eqn, options, literals),), reads, writes, eqn)


def _called(eqn: JaxprEqn) -> tuple[ClosedJaxpr | None, Sequence[Atom]]:
    """The body that an equation runs once, if it does so, and what that reads."""
    reads = eqn.invars
    if eqn.primitive.name == "custom_linear_solve":  # the other bodies are for derivatives
        lengths = eqn.params["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        given = [*reads[first : first + lengths.solve], *reads[sum(lengths) :]]
        return eqn.params["jaxprs"].solve, given
    if eqn.primitive.name in _OTHER_CALLS:
        return eqn.params[_OTHER_CALLS[eqn.primitive.name]], reads
    return call_body(eqn), reads


def _look_up(known: dict[Any, int | None], atom: Atom) -> int | None:
    return None if isinstance(atom, Literal) else known[atom]


def _operation(
    eqn: JaxprEqn, options: PlanOptions, literals: tuple[float | None, ...]
) -> Operation:
    name = eqn.primitive.name
    proportion, partials = options.of(name)
    if name in PLANNED:
        partials = marks.read(name_stack(eqn)).partials_type or partials
    return Operation(
        name=name,
        operands=tuple(shape(atom.aval) for atom in eqn.invars),
        results=tuple(shape(var.aval) for var in eqn.outvars),
        params=tuple((k, v) for k, v in eqn.params.items() if _is_plain(v)),
        partials=partials,
        memory_proportion=proportion,
        literals=literals,
    )


def _is_plain(value: Any) -> bool:
    """Whether a parameter can be part of a key: hashable, and no jaxpr."""
    if is_jaxpr(value) or callable(value):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return not (isinstance(value, tuple) and any(map(is_jaxpr, value)))


def _scan(
    eqn: JaxprEqn, reads: tuple[int | None, ...], writes: tuple[int, ...], options: PlanOptions
) -> Loop:
    body = list_operations(eqn.params["jaxpr"], options, eqn)
    consts, carries = eqn.params["num_consts"], eqn.params["num_carry"]
    return Loop(
        bodies=(body,),
        trips=eqn.params["length"],
        reads=reads,
        inner=(tuple(range(len(reads))),),
        carried=tuple((consts + i, i) for i in range(carries)),
        writes=writes,
        eqn=eqn,
    )


def _while(
    eqn: JaxprEqn, reads: tuple[int | None, ...], writes: tuple[int, ...], options: PlanOptions
) -> Loop:
    condition = list_operations(eqn.params["cond_jaxpr"], options, eqn)
    body = list_operations(eqn.params["body_jaxpr"], options, eqn)
    first, second = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    state = range(first + second, len(reads))
    return Loop(
        bodies=(condition, body),
        trips=None,
        reads=reads,
        inner=((*range(first), *state), (*range(first, first + second), *state)),
        carried=tuple((operand, i) for i, operand in enumerate(state)),
        writes=writes,
        eqn=eqn,
    )


def _cond(
    eqn: JaxprEqn, reads: tuple[int | None, ...], writes: tuple[int, ...], options: PlanOptions
) -> Choice:
    branches = tuple(list_operations(branch, options, eqn) for branch in eqn.params["branches"])
    return Choice(branches, reads[1:], writes, eqn)


def _repeat(
    eqn: JaxprEqn, reads: tuple[int | None, ...], writes: tuple[int, ...], options: PlanOptions
) -> Loop:
    trips, consts = eqn.params["count"], eqn.params["num_consts"]
    reads = reads if trips is not None else reads[1:]
    listing = list_operations(eqn.params["body"], options, eqn)
    carried = tuple((consts + i, i) for i in range(len(reads) - consts))
    return Loop((listing,), trips, reads, (tuple(range(len(reads))),), carried, writes, eqn)


_BRANCHES: dict[str, Callable[..., Item | Loop | Choice]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "ipu_repeat": _repeat,
}


def with_bodies(listing: Listing, change: Callable[[Listing], Listing]) -> Listing:
    """The listing with the bodies of its loops and branches changed."""
    items: list[Item | Loop | Choice] = []
    for item in listing.items:
        match item:
            case Loop():
                items.append(dc.replace(item, bodies=tuple(map(change, item.bodies))))
            case Choice():
                items.append(dc.replace(item, branches=tuple(map(change, item.branches))))
            case Item():
                items.append(item)
    return dc.replace(listing, items=tuple(items))


def _in_backward_pass(item: Item | Loop | Choice) -> Item | Loop | Choice:
    """The item, and all in its bodies, as parts of a backward pass."""

    def marked(body: Listing) -> Listing:
        return dc.replace(body, items=tuple(map(_in_backward_pass, body.items)))

    match item:
        case Item():
            return dc.replace(item, backward=True)
        case Loop():
            return dc.replace(item, bodies=tuple(map(marked, item.bodies)))
        case Choice():
            return dc.replace(item, branches=tuple(map(marked, item.branches)))
