"""The user's names of a program's values: paths of arguments, and values that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from lowering import ir
from lowering.ground import ValueId
from lowering.jaxprs import Literal, typed_jax

Names: TypeAlias = dict[ValueId, str]


def find_value_names(
    program: ir.Program, arguments: Mapping[int, str], results: Sequence[str] = ()
) -> Names:
    """Finds the names of values: a loop variable has that of its initial value.

    Args:
      program: the whole program.
      arguments: the user's names of arguments, by their values.
      results: the user's names of results, in their order.
    """
    names: Names = {ValueId(value): name for value, name in arguments.items()}
    user_name_of: dict[str, str] = {}  # a pipeline's name of a variable -> the user's
    for node in ir.walk_nodes(program.body):
        match node:
            case ir.Execute():
                _name_kernel_results(node, names)
            case ir.Store():
                _copy_name(names, node.value, node.kept)
            case ir.Load():
                _copy_name(names, node.kept, node.value)
            case ir.StreamIn():
                has_several = len(node.writes) > 1
                for i, value in enumerate(node.writes):
                    names[value] = f"{node.queue.name}[{i}]" if has_several else node.queue.name
            case ir.Repeat():
                user_name_of |= _name_variables_of_loop(program, node, names)
                _name_loop_variables(node, names)
            case ir.Pipeline():
                for carry, (role, variable) in zip(node.carry, node.variables, strict=False):
                    parts = user_name_of.get(variable, variable), role
                    names.setdefault(carry.initial, ": ".join(filter(None, parts)))
                _name_loop_variables(node, names)
            case ir.While():
                _name_loop_variables(node, names)
            case _:
                pass
    for value, name in zip(program.outputs, results, strict=False):
        names.setdefault(value, name)
    return names


def _copy_name(names: Names, value: ValueId, *unnamed: ValueId) -> None:
    """Copies a value's name, if it has one, to others that have none."""
    if value in names:
        for target in unnamed:
            names.setdefault(target, names[value])


def _name_kernel_results(node: ir.Execute, names: Names) -> None:
    """Names kernel results that are operands, or copies of them."""
    jaxpr = node.kernel.jaxpr.jaxpr
    copy_source = {
        eqn.outvars[0]: eqn.invars[0] for eqn in jaxpr.eqns if eqn.primitive.name == "copy"
    }
    reads: dict[Any, ValueId] = dict(zip(jaxpr.invars, node.reads, strict=True))
    for atom, value in zip(jaxpr.outvars, node.writes, strict=True):
        source = None if isinstance(atom, Literal) else copy_source.get(atom, atom)
        if source is not None and not isinstance(source, Literal) and source in reads:
            _copy_name(names, reads[source], value)


def _name_loop_variables(node: ir.Repeat | ir.Pipeline | ir.While, names: Names) -> None:
    for carry in node.carry:
        _copy_name(names, carry.initial, carry.entering, carry.leaving, carry.final)


class _Variable(NamedTuple):
    """A loop variable, and its path in the structure of all of them."""

    value: ValueId
    path: tuple[Any, ...]
    own: str
    root: str


def _name_variables_of_loop(program: ir.Program, node: ir.Repeat, names: Names) -> dict[str, str]:
    """Names the loop variables that come from no argument; returns the names of all of them.

    An optimizer's state mirrors the parameters: such a leaf belongs to the parameter whose path its
    own path ends with.
    """
    variables = list(_variables_of_loop(node))
    named = [variable for variable in variables if variable.value in names]
    for variable in variables:
        if variable.value not in names:
            names[variable.value] = _name_of_slot(program, variable, named, names)
    return {variable.own: names[variable.value] for variable in variables}


def _variables_of_loop(node: ir.Repeat) -> Iterator[_Variable]:
    structure = node.loop
    if structure is None:
        return
    roots = node.names or tuple(f"inputs[{i}]" for i in range(len(structure.children())))
    tree = typed_jax.tree_unflatten(structure, range(structure.num_leaves))
    for (path, _), carry in zip(typed_jax.tree_leaves_with_path(tree), node.carry, strict=False):
        number: int = path[0].idx
        root, path_in_root = roots[number], tuple(path[1:])
        yield _Variable(
            carry.initial, path_in_root, f"{root}{typed_jax.keystr(path_in_root)}", root
        )


def _name_of_slot(
    program: ir.Program, slot: _Variable, named: Sequence[_Variable], names: Names
) -> str:
    """Returns a name as `params['w']: optimizer_state[0].mu`, or a slot's own name."""
    aval = program.avals[slot.value]
    owners = [
        candidate
        for candidate in named
        if program.avals[candidate.value].shape == aval.shape
        and slot.root != candidate.root
        and slot.path[len(slot.path) - len(candidate.path) :] == candidate.path
    ]
    if not owners or (not aval.shape and not owners[0].path):
        return slot.own
    owner = max(owners, key=lambda other: len(other.path))
    slot_path = slot.path[: len(slot.path) - len(owner.path)]
    return f"{names[owner.value]}: {slot.root}{typed_jax.keystr(slot_path)}"
