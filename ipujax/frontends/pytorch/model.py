"""A traced module as a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.utils import _pytree as pytree

from ipujax.doors.graphs import Evaluation, Graph, Node, filled, module_scope, names_in
from ipujax.frontends.checks import check
from ipujax.frontends.model import Model, Part, Tree, Variables
from ipujax.frontends.pytorch.arrays import to_jax, to_torch
from ipujax.frontends.pytorch.capture import Captured, captured_for_any_use
from ipujax.frontends.pytorch.errors import scripted
from ipujax.frontends.pytorch.gradients import trained_by
from ipujax.frontends.pytorch.operators import ATEN
from ipujax.frontends.pytorch.operators.backward import refuse_derivatives
from ipujax.frontends.pytorch.schema import is_traced_script
from ipujax.frontends.pytorch.structures import leaves_of, plain
from ipujax.frontends.pytorch.trace import BLOCK
from ipujax.pipelines.places import stage_scope


def model_of(module: Any, example_args: Any, example_kwargs: Any = None) -> Model:
    """As `from_torch`."""
    check.instance(module, torch.nn.Module, "the module", "a torch.nn.Module")
    _refuse_scripts(module)
    args = check.sequence(example_args, "example_args")
    check.instance(example_kwargs or {}, Mapping, "example_kwargs")
    args, kwargs = pytree.tree_map(_tensor, (tuple(args), dict(example_kwargs or {})))
    found, refusals = captured_for_any_use(module, args, kwargs, ATEN)
    stage_of = stages_of(found.graph)

    def scopes(node: Node) -> tuple[str, ...]:
        stage = stage_of(node)
        return module_scope(node) if stage is None else (stage_scope(stage), *module_scope(node))

    evaluation = Evaluation(ATEN, scopes)

    def function(
        variables: Variables, inputs: tuple[Tree, ...], key: Any
    ) -> tuple[Tree, Variables]:
        split = len(inputs) - len(kwargs)
        variables = refuse_derivatives(refusals.variables, variables)
        inputs = refuse_derivatives(refusals.inputs, inputs)
        given = leaves_of(found, inputs[:split], dict(zip(kwargs, inputs[split:], strict=True)))
        named = named_values(found, evaluation, variables, given, key)
        tree = pytree.tree_unflatten(filled(found.graph.outputs, named), found.out_tree)
        return plain(tree), variables_after(found, variables, named)

    def find_parts() -> tuple[Part, ...]:
        return parts_of(found, stage_of)

    variables = {name: to_jax(tensor) for name, tensor in found.variables.items()}
    trainable = trained_by(found, names_in(found.graph.outputs))
    return Model(variables, trainable, function, find_parts)


def _refuse_scripts(module: torch.nn.Module) -> None:
    """Refuses TorchScript; parts that torch.jit.trace has made can be traced again."""
    for name, part in module.named_modules():
        is_part = bool(name) and is_traced_script(part)
        if isinstance(part, torch.jit.ScriptModule) and not is_part:
            raise scripted(name, part)


def named_values(
    found: Captured,
    evaluation: Evaluation,
    variables: Mapping[str, Any],
    leaves: Sequence[Any],
    key: Any = None,
) -> dict[str, Any]:
    """The values that all names of a module's graph have in the end.

    Args:
      found: the module, traced.
      evaluation: what evaluates its graph.
      variables: values of all its variables.
      leaves: of the user's inputs, flat.
      key: of random numbers.
    """
    values = {name: to_jax(tensor) for name, tensor in found.constants.items()}
    for variable, names in found.names.items():
        values |= dict.fromkeys(names, variables[variable])
    given = zip(found.inputs, leaves, strict=True)
    values |= {n: leaf for n, leaf in given if n is not None}
    # Operators promote arrays of JAX, and write to them; those of NumPy know neither.
    return evaluation(found.graph, {n: jnp.asarray(value) for n, value in values.items()}, key)


def variables_after(
    found: Captured, before: Mapping[str, Any], named: Mapping[str, Any]
) -> Variables:
    """The variables as a graph leaves them."""
    after = {v: named[names[0]] for v, names in found.names.items()}
    return {name: after.get(name, value) for name, value in before.items()}


def stages_of(graph: Graph) -> Callable[[Node], int | None]:
    """The stages of nodes: a new one for each block that begins, counted from 0."""
    blocks = dict.fromkeys(name for node in graph.nodes if (name := _block(node)) is not None)
    numbers = {name: number for number, name in enumerate(blocks)}
    return lambda node: numbers.get(_block(node))


def _block(node: Node) -> Any:
    """The name of the block that a node is in."""
    block = node.marks.get(BLOCK)
    return None if block is None else block[0]


def parts_of(found: Captured, stage_of: Callable[[Node], int | None]) -> tuple[Part, ...]:
    """The modules that hold operators, each time that the graph comes to them."""
    parts: list[Part] = []
    for node in found.graph.nodes:
        part = Part(node.scope, stage_of(node))
        if node.scope and (not parts or parts[-1] != part):
            parts.append(part)
    return tuple(parts)


def _tensor(leaf: Any) -> Any:
    is_array = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) or hasattr(leaf, "__array__")
    if not is_array or isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return to_torch(jax.numpy.zeros(leaf.shape, leaf.dtype))
    return to_torch(leaf)
