"""What a user calls the values of a program: arguments by their paths, and what stems from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from jax.tree_util import keystr, tree_leaves_with_path, tree_unflatten

from lowering import ir
from lowering.jaxpr import Literal
from lowering.units import ValueId

Names: TypeAlias = dict[ValueId, str]


def value_names(
    program: ir.Program, arguments: Mapping[int, str], results: Sequence[str] = ()
) -> Names:
    """Names of values: a loop variable has that of what it starts with.

    Args:
      program: the whole program.
      arguments: what the user calls them, by their values.
      results: what the user calls those, in their order.
    """
    names: Names = {ValueId(value): name for value, name in arguments.items()}
    own: dict[str, str] = {}  # what a pipeline calls its variables -> what the user does
    for node in ir.walk(program.body):
        match node:
            case ir.Execute():
                _pass_on(node, names)
            case ir.Store():
                _same(names, node.value, node.kept)
            case ir.Load():
                _same(names, node.kept, node.value)
            case ir.StreamIn():
                several = len(node.writes) > 1
                for i, value in enumerate(node.writes):
                    names[value] = f"{node.queue.name}[{i}]" if several else node.queue.name
            case ir.Repeat():
                own |= _of_loop(program, node, names)
                _carried(node, names)
            case ir.Pipeline():
                for carry, (role, of) in zip(node.carry, node.variables, strict=False):
                    parts = own.get(of, of), role
                    names.setdefault(carry.initial, ": ".join(filter(None, parts)))
                _carried(node, names)
            case ir.While():
                _carried(node, names)
            case _:
                pass
    for value, name in zip(program.outputs, results, strict=False):
        names.setdefault(value, name)
    return names


def _same(names: Names, value: ValueId, *others: ValueId) -> None:
    """Gives a value's name, if it has one, to others that have none."""
    if value in names:
        for other in others:
            names.setdefault(other, names[value])


def _pass_on(node: ir.Execute, names: Names) -> None:
    """What a kernel gives back as it got it, or as a copy, is called the same."""
    jaxpr = node.kernel.jaxpr.jaxpr
    copied = {eqn.outvars[0]: eqn.invars[0] for eqn in jaxpr.eqns if eqn.primitive.name == "copy"}
    reads: dict[Any, ValueId] = dict(zip(jaxpr.invars, node.reads, strict=True))
    for atom, value in zip(jaxpr.outvars, node.writes, strict=True):
        source = None if isinstance(atom, Literal) else copied.get(atom, atom)
        if source is not None and not isinstance(source, Literal) and source in reads:
            _same(names, reads[source], value)


def _carried(node: ir.Repeat | ir.Pipeline | ir.While, names: Names) -> None:
    for carry in node.carry:
        _same(names, carry.initial, carry.entering, carry.leaving, carry.final)


class _Variable(NamedTuple):
    """A loop variable, and its path in the structure of all of them."""

    value: ValueId
    path: tuple[Any, ...]
    own: str
    root: str


def _of_loop(program: ir.Program, node: ir.Repeat, names: Names) -> dict[str, str]:
    """Names the variables of a loop that no argument is behind; gives all names of a pipeline's.

    What an optimizer keeps mirrors the parameters: such a leaf belongs to the parameter whose path
    its own ends with.
    """
    variables = list(_variables(node))
    named = [variable for variable in variables if variable.value in names]
    for variable in variables:
        if variable.value not in names:
            names[variable.value] = _of_slot(program, variable, named, names)
    return {variable.own: names[variable.value] for variable in variables}


def _variables(node: ir.Repeat) -> Iterator[_Variable]:
    structure = node.loop
    if structure is None:
        return
    roots = node.names or tuple(f"inputs[{i}]" for i in range(len(structure.children())))
    tree = tree_unflatten(structure, range(structure.num_leaves))
    for (path, _), carry in zip(tree_leaves_with_path(tree), node.carry, strict=False):
        root, inner = roots[path[0].idx], tuple(path[1:])
        yield _Variable(carry.initial, inner, f"{root}{keystr(inner)}", root)


def _of_slot(program: ir.Program, slot: _Variable, named: Sequence[_Variable], names: Names) -> str:
    """As `params['w']: optimizer_state[0].mu`; its own name if it is of no parameter."""
    aval = program.avals[slot.value]
    owners = [
        other
        for other in named
        if program.avals[other.value].shape == aval.shape
        and slot.root != other.root
        and slot.path[len(slot.path) - len(other.path) :] == other.path
    ]
    if not owners or (not aval.shape and not owners[0].path):
        return slot.own
    owner = max(owners, key=lambda other: len(other.path))
    rest = slot.path[: len(slot.path) - len(owner.path)]
    return f"{names[owner.value]}: {slot.root}{keystr(rest)}"
