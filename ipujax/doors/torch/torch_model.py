"""Conversion of a traced PyTorch module to a `Model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.utils import _pytree as pytree

from ipujax.doors.graphs import (
    Evaluation,
    Graph,
    Node,
    Operand,
    module_scope,
    names_of_refs,
    substitute_refs,
)
from ipujax.doors.models import Model, Part, Tree, Variables, check
from ipujax.doors.torch.capture import ModuleTrace, trace_torch_module_for_any_use
from ipujax.doors.torch.operators import ATEN
from ipujax.doors.torch.operators.backward import refuse_derivatives
from ipujax.doors.torch.schema import is_traced_script
from ipujax.doors.torch.tensor_arrays import to_jax, to_torch
from ipujax.doors.torch.torch_errors import torchscript_error
from ipujax.doors.torch.torch_gradients import find_trainable_sources
from ipujax.doors.torch.torch_structures import flatten_inputs, to_jax_pytree
from ipujax.doors.torch.trace import BLOCK
from ipujax.ground import PyTree
from ipujax.pipelines import stage_scope_name


def convert_torch_module(
    module: torch.nn.Module, example_args: object, example_kwargs: Any = None
) -> Model:
    """Converts a PyTorch module to a `Model`; see `from_torch`."""
    check.require_instance(module, torch.nn.Module, "the module", "a torch.nn.Module")
    _refuse_torchscript(module)
    args = check.require_sequence(example_args, "example_args")
    check.require_instance(example_kwargs or {}, Mapping, "example_kwargs")
    args, kwargs = pytree.tree_map(_convert_to_tensor, (tuple(args), dict(example_kwargs or {})))
    module_trace, refusals = trace_torch_module_for_any_use(module, args, kwargs, ATEN)
    stage_of = assign_stages_to_nodes(module_trace.graph)

    def scopes_of_torch_node(node: Node) -> tuple[str, ...]:
        stage = stage_of(node)
        return (
            module_scope(node) if stage is None else (stage_scope_name(stage), *module_scope(node))
        )

    evaluation = Evaluation(ATEN, scopes_of_torch_node)

    def apply_torch_module(
        variables: Variables, inputs: tuple[Tree, ...], key: jax.Array | None
    ) -> tuple[Tree, Variables]:
        positional_count = len(inputs) - len(kwargs)
        variables = refuse_derivatives(refusals.variables, variables)
        inputs = refuse_derivatives(refusals.inputs, inputs)
        input_leaves = flatten_inputs(
            module_trace,
            inputs[:positional_count],
            dict(zip(kwargs, inputs[positional_count:], strict=True)),
        )
        value_of_name = compute_named_values(module_trace, evaluation, variables, input_leaves, key)
        tree = pytree.tree_unflatten(
            substitute_refs(module_trace.graph.outputs, value_of_name), module_trace.out_tree
        )
        return to_jax_pytree(tree), collect_updated_variables(
            module_trace, variables, value_of_name
        )

    def find_parts() -> tuple[Part, ...]:
        return find_module_parts(module_trace, stage_of)

    variables = {name: to_jax(tensor) for name, tensor in module_trace.variables.items()}
    trainable = find_trainable_sources(module_trace, names_of_refs(module_trace.graph.outputs))
    return Model(variables, trainable, apply_torch_module, find_parts)


def _refuse_torchscript(module: torch.nn.Module) -> None:
    """Refuses TorchScript modules, except parts made by torch.jit.trace, which can be traced."""
    for name, part in module.named_modules():
        is_part = bool(name) and is_traced_script(part)
        if isinstance(part, torch.jit.ScriptModule) and not is_part:
            raise torchscript_error(name, part)


def compute_named_values(
    module_trace: ModuleTrace,
    evaluation: Evaluation,
    variables: Mapping[str, object],
    leaves: Sequence[object],
    key: jax.Array | None = None,
) -> dict[str, Operand]:
    """Evaluates a module's graph and returns the final values of all its names.

    Args:
      module_trace: the traced module.
      evaluation: evaluates the graph.
      variables: the values of all variables.
      leaves: the user inputs as a flat list.
      key: the random key.
    """
    values = {name: to_jax(tensor) for name, tensor in module_trace.constants.items()}
    for variable, names in module_trace.names.items():
        values |= dict.fromkeys(names, variables[variable])
    input_leaves = zip(module_trace.inputs, leaves, strict=True)
    values |= {n: leaf for n, leaf in input_leaves if n is not None}
    # Operators need JAX's promotion rules and `.at` updates, which NumPy arrays lack.
    return evaluation(
        module_trace.graph, {n: jnp.asarray(value) for n, value in values.items()}, key
    )


def collect_updated_variables(
    module_trace: ModuleTrace, variables: Mapping[str, object], value_of_name: Mapping[str, object]
) -> Variables:
    """Returns the variables after the graph's in-place updates."""
    updated = {v: value_of_name[names[0]] for v, names in module_trace.names.items()}
    return {name: updated.get(name, value) for name, value in variables.items()}


def assign_stages_to_nodes(graph: Graph) -> Callable[[Node], int | None]:
    """Returns a function from a node to its stage: blocks in order, counted from 0."""
    blocks = dict.fromkeys(
        name for node in graph.nodes if (name := _block_of_node(node)) is not None
    )
    numbers = {name: number for number, name in enumerate(blocks)}
    return lambda node: numbers.get(_block_of_node(node))


def _block_of_node(node: Node) -> object:
    """Returns the name of the block that contains a node, or None."""
    block = node.marks.get(BLOCK)
    return None if block is None else block[0]


def find_module_parts(
    module_trace: ModuleTrace, stage_of: Callable[[Node], int | None]
) -> tuple[Part, ...]:
    """Returns the modules that hold operators, once for each time the graph enters them."""
    parts: list[Part] = []
    for node in module_trace.graph.nodes:
        part = Part(node.scope, stage_of(node))
        if node.scope and (not parts or parts[-1] != part):
            parts.append(part)
    return tuple(parts)


def _convert_to_tensor(leaf: object) -> PyTree:
    is_array = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) or hasattr(leaf, "__array__")
    if not is_array or isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return to_torch(jax.numpy.zeros(leaf.shape, leaf.dtype))
    return to_torch(leaf)
