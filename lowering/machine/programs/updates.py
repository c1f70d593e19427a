"""Updates: results of a program that take the memory of the old values they replace."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lowering import ir
from lowering.ground import HOST, ValueId
from lowering.jaxprs import Jaxpr, JaxprEqn, Literal, body_of_call, shape_of
from lowering.machine.primitives import ELEMENTWISE
from lowering.ops import ControlFlow, is_control_flow

Updates: TypeAlias = dict[ir.Place, ir.Place]
"""The new value that replaces each old value, each with its IPU, which is the same."""

_Stems: TypeAlias = frozenset[ValueId]
"""The arguments that a value is an update of: each element comes from one of theirs."""

_NONE: _Stems = frozenset()
_PARTLY = ("dynamic_update_slice", "scatter")  # these write into their first operand
_AS_THEY_ARE = {"copy", "optimization_barrier"}


def find_updates(program: ir.Program, donated: Collection[int] = ()) -> Updates:
    """Finds results that take the memory of arguments, as assignments to variables did.

    A result takes the memory of an argument of its shape and dtype from which it was computed
    element by element, as an optimizer computes weights; or else of any donated argument. Results
    with few choices choose first, all in order.

    Args:
      program: the whole program.
      donated: positions of the arguments that are given away.
    """
    stems = _find_replaced_arguments(program)
    inputs = frozenset(program.inputs)
    results = [value for value in dict.fromkeys(program.outputs) if value not in inputs]
    arguments_of_type: dict[object, list[ValueId]] = collections.defaultdict(list)
    for argument in program.inputs:
        arguments_of_type[_type_of(program, argument)].append(argument)

    def arguments_of_same_type(value: ValueId, arguments: Collection[ValueId]) -> list[ValueId]:
        of_type = arguments_of_type[_type_of(program, value)]
        return [argument for argument in of_type if argument in arguments]

    candidates = {
        value: arguments_of_same_type(value, stems.get(value, _NONE)) for value in results
    }
    old: dict[ValueId, ValueId] = {}
    replaced: set[ValueId] = set()

    def replace_first_free(value: ValueId, arguments: Iterable[ValueId]) -> None:
        free = next((argument for argument in arguments if argument not in replaced), None)
        if value not in old and free is not None:
            old[value] = free
            replaced.add(free)

    for value in sorted(results, key=lambda value: len(candidates[value])):
        replace_first_free(value, candidates[value])
    donated_values = {value for i, value in enumerate(program.inputs) if i in donated}
    for value in results if donated_values else ():
        replace_first_free(value, arguments_of_same_type(value, donated_values))
    copies = [node for node in program.body.steps if isinstance(node, ir.Copy)]
    on_tiles = {(v, copy.target) for copy in copies if copy.source == HOST for v in copy.values}
    leaving = {(v, copy.source) for copy in copies if copy.target == HOST for v in copy.values}
    pairs = (((old[value], ipu), (value, ipu)) for value, ipu in leaving if value in old)
    return {old_value: new_value for old_value, new_value in pairs if old_value in on_tiles}


def find_loop_updates(program: ir.Program) -> Updates:
    """Finds the values of an iteration that take the memory of those that entered it."""
    updates: Updates = {}
    for node in ir.walk_nodes(program.body):
        if isinstance(node, ir.Repeat | ir.Pipeline | ir.While):
            born = {
                value_on_ipu
                for step in node.body.steps
                for value_on_ipu in ir.places_of_writes(step)
            }
            for carry in node.carry:
                leaving = (carry.leaving, carry.ipu)
                if leaving in born:
                    born.discard(leaving)  # a value of two variables replaces one
                    updates[carry.entering, carry.ipu] = leaving
    return updates


def _type_of(program: ir.Program, value: ValueId) -> tuple[object, ...]:
    """Returns the shape and dtype of a value."""
    aval = program.avals[value]
    return aval.shape, aval.dtype


def _find_replaced_arguments(program: ir.Program) -> Mapping[ValueId, _Stems]:
    stems: dict[ValueId, _Stems] = {value: frozenset({value}) for value in program.inputs}
    _follow_replaced_arguments(program.body, stems)
    return stems


def _follow_replaced_arguments(body: ir.Sequence, stems: dict[ValueId, _Stems]) -> None:
    for node in body.steps:
        if isinstance(node, ir.Repeat | ir.Pipeline | ir.While):
            stems.update((carry.entering, stems.get(carry.initial, _NONE)) for carry in node.carry)
        for body_of_node in ir.bodies_of_node(node):
            _follow_replaced_arguments(body_of_node.sequence, stems)
        stems.update(_arguments_replaced_by_writes(node, stems))


def _arguments_replaced_by_writes(
    node: ir.Node, stems: Mapping[ValueId, _Stems]
) -> Iterator[tuple[ValueId, _Stems]]:
    """Yields the stems of a node's results, once its bodies are known."""
    match node:
        case ir.Execute():
            reads = [stems.get(value, _NONE) for value in node.reads]
            yield from zip(
                node.writes,
                _arguments_replaced_by_results(node.kernel.jaxpr.jaxpr, reads),
                strict=True,
            )
        case ir.Store():
            yield node.kept, stems.get(node.value, _NONE)
        case ir.Load():
            yield node.value, stems.get(node.kept, _NONE)
        case ir.Repeat() | ir.Pipeline() | ir.While():
            yield from ((c.final, stems.get(c.initial, _NONE)) for c in node.carry)
        case ir.Switch():
            for i, value in enumerate(node.writes):
                stems_of_branches = (
                    stems.get(branch.results[i], _NONE) for branch in node.branches
                )
                yield value, _NONE.union(*stems_of_branches)
        case _:
            return


def _arguments_replaced_by_results(jaxpr: Jaxpr, reads: Sequence[_Stems]) -> list[_Stems]:
    """Returns the stems of a jaxpr's results."""
    stems_of_var: dict[Any, _Stems] = dict(zip(jaxpr.invars, reads, strict=True))

    def stems_of_atom(atom: Any) -> _Stems:
        return _NONE if isinstance(atom, Literal) else stems_of_var.get(atom, _NONE)

    for eqn in jaxpr.eqns:
        operands = [stems_of_atom(atom) for atom in eqn.invars]
        if any(operands):
            stems_of_var.update(
                zip(eqn.outvars, _arguments_replaced_by_equation(eqn, operands), strict=False)
            )
    return [stems_of_atom(atom) for atom in jaxpr.outvars]


def _arguments_replaced_by_equation(eqn: JaxprEqn, operands: Sequence[_Stems]) -> Sequence[_Stems]:
    """Returns the stems of an equation's results; missing ones have none."""
    name, body = eqn.primitive.name, body_of_call(eqn)
    if is_control_flow(eqn):
        flow = ControlFlow.view_of_equation(eqn)
        if flow.is_loop:
            return operands[flow.carried]
        stems_of_branches = [
            _arguments_replaced_by_results(branch.jaxpr, flow.select_body_operands(i, operands))
            for i, branch in enumerate(flow.bodies)
        ]
        return [_NONE.union(*results) for results in zip(*stems_of_branches, strict=True)]
    if body is not None and len(body.jaxpr.invars) == len(operands):
        return _arguments_replaced_by_results(body.jaxpr, operands)
    if name.startswith(_PARTLY):
        return operands[:1]
    if name in _AS_THEY_ARE:
        return operands
    if name not in ELEMENTWISE:
        return ()
    shape = shape_of(eqn.outvars[0].aval)
    pairs = zip(eqn.invars, operands, strict=True)
    return [_NONE.union(*(stems for atom, stems in pairs if shape_of(atom.aval) == shape))]
