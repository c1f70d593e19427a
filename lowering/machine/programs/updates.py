"""Which results are new values of what a program was given, and go where the old ones were."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lowering import ir
from lowering.avals import shape_of
from lowering.control_flow import ControlFlow, is_control_flow
from lowering.jaxpr import Jaxpr, JaxprEqn, Literal, call_body
from lowering.machine.primitives import ELEMENTWISE
from lowering.units import HOST, ValueId

Updates: TypeAlias = dict[ir.Place, ir.Place]
"""From where an old value is to where the new one is made, on the same IPU."""

_Stems: TypeAlias = frozenset[ValueId]
"""The arguments that a value is an update of: its elements come of theirs, one of one."""

_NONE: _Stems = frozenset()
_PARTLY = ("dynamic_update_slice", "scatter")  # what writes into its first operand
_AS_THEY_ARE = {"copy", "optimization_barrier"}


def updates_of(program: ir.Program, donated: Collection[int] = ()) -> Updates:
    """Results in the place of arguments, as the original's assignments to variables were.

    A result takes the place of an argument of its shape and dtype that it has been made of element
    by element, as weights by an optimizer; or else of one that the caller gives away, whatever it
    has been made of. Those that could take few places choose before the others, all in order.

    Args:
      program: the whole program.
      donated: positions of the arguments that are given away.
    """
    stems = _stems(program)
    results = [value for value in dict.fromkeys(program.outputs) if value not in program.inputs]
    able = {value: _alike(program, value, stems.get(value, _NONE)) for value in results}
    given = [value for i, value in enumerate(program.inputs) if i in donated]
    old: dict[ValueId, ValueId] = {}
    for value in sorted(results, key=lambda value: len(able[value])):
        _choose(old, value, able[value])
    for value in results:
        _choose(old, value, _alike(program, value, given))
    copies = [node for node in program.body.steps if isinstance(node, ir.Copy)]
    held = {(v, copy.target) for copy in copies if copy.source == HOST for v in copy.values}
    leaving = {(v, copy.source) for copy in copies if copy.target == HOST for v in copy.values}
    pairs = (((old[value], ipu), (value, ipu)) for value, ipu in leaving if value in old)
    return {before: after for before, after in pairs if before in held}


def in_loops(program: ir.Program) -> Updates:
    """What the iterations of loops leave in the place of what entered them."""
    found: Updates = {}
    for node in ir.walk(program.body):
        if isinstance(node, ir.Repeat | ir.Pipeline | ir.While):
            born = {place for step in node.body.steps for place in ir.births(step)}
            for carry in node.carry:
                leaving = (carry.leaving, carry.ipu)
                if leaving in born:
                    born.discard(leaving)  # one that two variables get has one place
                    found[carry.entering, carry.ipu] = leaving
    return found


def _choose(old: dict[ValueId, ValueId], value: ValueId, able: Iterable[ValueId]) -> None:
    """Gives a result that has no place yet the first one that is free."""
    taken = set(old.values())
    free = next((argument for argument in able if argument not in taken), None)
    if value not in old and free is not None:
        old[value] = free


def _alike(program: ir.Program, value: ValueId, arguments: Collection[ValueId]) -> list[ValueId]:
    """Those of the arguments that have the value's shape and dtype, in order."""
    avals, ours = program.avals, program.avals[value]
    return [
        argument
        for argument in program.inputs
        if argument in arguments
        and (avals[argument].shape, avals[argument].dtype) == (ours.shape, ours.dtype)
    ]


def _stems(program: ir.Program) -> Mapping[ValueId, _Stems]:
    stems: dict[ValueId, _Stems] = {value: frozenset({value}) for value in program.inputs}
    _walk(program.body, stems)
    return stems


def _walk(body: ir.Sequence, stems: dict[ValueId, _Stems]) -> None:
    for node in body.steps:
        if isinstance(node, ir.Repeat | ir.Pipeline | ir.While):
            stems.update((carry.entering, stems.get(carry.initial, _NONE)) for carry in node.carry)
        for inside in ir.bodies(node):
            _walk(inside.sequence, stems)
        stems.update(_left_by(node, stems))


def _left_by(node: ir.Node, stems: Mapping[ValueId, _Stems]) -> Iterator[tuple[ValueId, _Stems]]:
    """What a node makes of what, once its bodies are known."""
    match node:
        case ir.Execute():
            reads = [stems.get(value, _NONE) for value in node.reads]
            yield from zip(node.writes, _through(node.kernel.jaxpr.jaxpr, reads), strict=True)
        case ir.Store():
            yield node.kept, stems.get(node.value, _NONE)
        case ir.Load():
            yield node.value, stems.get(node.kept, _NONE)
        case ir.Repeat() | ir.Pipeline() | ir.While():
            yield from ((c.final, stems.get(c.initial, _NONE)) for c in node.carry)
        case ir.Switch():
            for i, value in enumerate(node.writes):
                ways = (stems.get(branch.results[i], _NONE) for branch in node.branches)
                yield value, _NONE.union(*ways)
        case _:
            return


def _through(jaxpr: Jaxpr, reads: Sequence[_Stems]) -> list[_Stems]:
    """The stems of a jaxpr's results."""
    known: dict[Any, _Stems] = dict(zip(jaxpr.invars, reads, strict=True))

    def of(atom: Any) -> _Stems:
        return _NONE if isinstance(atom, Literal) else known.get(atom, _NONE)

    for eqn in jaxpr.eqns:
        operands = [of(atom) for atom in eqn.invars]
        if any(operands):
            known.update(zip(eqn.outvars, _equation(eqn, operands), strict=False))
    return [of(atom) for atom in jaxpr.outvars]


def _equation(eqn: JaxprEqn, operands: Sequence[_Stems]) -> Sequence[_Stems]:
    """The stems of its results; missing ones have none."""
    name, body = eqn.primitive.name, call_body(eqn)
    if is_control_flow(eqn):
        flow = ControlFlow.of(eqn)
        if flow.is_loop:
            return operands[flow.carried]
        ways = [
            _through(branch.jaxpr, flow.arguments(i, operands))
            for i, branch in enumerate(flow.bodies)
        ]
        return [_NONE.union(*results) for results in zip(*ways, strict=True)]
    if body is not None and len(body.jaxpr.invars) == len(operands):
        return _through(body.jaxpr, operands)
    if name.startswith(_PARTLY):
        return operands[:1]
    if name in _AS_THEY_ARE:
        return operands
    if name not in ELEMENTWISE:
        return ()
    shape = shape_of(eqn.outvars[0].aval)
    pairs = zip(eqn.invars, operands, strict=True)
    return [_NONE.union(*(stems for atom, stems in pairs if shape_of(atom.aval) == shape))]
