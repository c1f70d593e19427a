"""Conversion of an ONNX model to a `Model`."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import onnx

from ipujax.doors.graphs import Evaluation, Graph, Node, Operand, module_scope, substitute_refs
from ipujax.doors.models import Model, Part, Tree, Variables, check
from ipujax.doors.onnx.dtypes import narrow_integers
from ipujax.doors.onnx.fold import fold_constants, names_that_decide_shapes, nodes_of_graph
from ipujax.doors.onnx.graph_inputs import (
    Shapes,
    check_input_names,
    convert_constant_inputs,
    find_input_avals,
)
from ipujax.doors.onnx.onnx_nodes import NODE_NAME, convert_graph_proto, tensor_to_numpy
from ipujax.doors.onnx.operators import ONNX
from ipujax.doors.onnx.read_model import read_onnx_model, resolve_operator
from ipujax.pipelines import stage_scope_name

STAGE = "__pipeline_stage"
"""The node attribute that holds its pipeline stage (PopART's name for it)."""

_UPDATE = "ai.graphcore.CopyVarUpdate"


@dc.dataclass(frozen=True, eq=False)
class ConvertedGraph:
    """A model's graph, ready to be evaluated.

    Attributes:
      graph: the nodes that remain after constant folding.
      inputs: shapes and dtypes of the inputs, by their names, in order.
      variables: floating-point initializers, and initializers that the model updates.
      avals: shapes and dtypes of all names.
      constants: the values of all constant names.
    """

    graph: Graph
    inputs: Mapping[str, jax.ShapeDtypeStruct]
    variables: Variables
    avals: Mapping[str, jax.ShapeDtypeStruct]
    constants: Mapping[str, Any]

    def compute_all_values(
        self,
        evaluation: Evaluation,
        variables: Variables,
        inputs: Sequence[object],
        key: jax.Array | None,
    ) -> dict[str, Operand]:
        """Evaluates the graph and returns the values of all its names."""
        input_values = dict(zip(self.inputs, inputs, strict=True))
        return evaluation(self.graph, {**variables, **input_values}, key)


def convert_onnx_model(source: object, shapes: Shapes, constants: Mapping[str, object]) -> Model:
    """Converts an ONNX model to a `Model`; see `from_onnx`."""
    converted_graph = convert_graph(read_onnx_model(source), shapes, constants)
    evaluation = Evaluation(ONNX, scopes_of_onnx_node)

    def apply_onnx_graph(
        variables: Variables, inputs: tuple[Tree, ...], key: jax.Array | None
    ) -> tuple[Tree, Variables]:
        arrays = check_inputs(converted_graph, inputs)
        value_of_name = converted_graph.compute_all_values(evaluation, variables, arrays, key)
        outputs = substitute_refs(converted_graph.graph.outputs, value_of_name)
        return tuple(jnp.asarray(narrow_integers(value)) for value in outputs), variables

    return Model(
        converted_graph.variables,
        tuple(converted_graph.variables),
        apply_onnx_graph,
        lambda: find_scope_parts(converted_graph.graph),
    )


def scopes_of_onnx_node(node: Node) -> tuple[str, ...]:
    """Returns the scope names of a node: its stage, then the path in its name, or its name."""
    stage, name = node.marks.get(STAGE), node.marks.get(NODE_NAME, "").strip("/")
    scopes = module_scope(node) or ((name,) if name else ())
    return scopes if stage is None else (stage_scope_name(stage), *scopes)


def convert_graph(
    proto: onnx.ModelProto,
    shapes: Shapes,
    constants: Mapping[str, object],
    marks: Mapping[str, object] | None = None,
) -> ConvertedGraph:
    """Converts a parsed ONNX model to a graph with the shapes of all names.

    Args:
      proto: the model.
      shapes: see `from_onnx`.
      constants: see `from_onnx`.
      marks: annotations of every node, such as the number of replicas.

    Raises:
      FrontendError: (a `ValueError`) see `from_onnx`.
    """
    graph = convert_graph_proto(proto.graph, _make_operator_resolver(proto), marks or {})
    initializers = {tensor.name: tensor_to_numpy(tensor) for tensor in proto.graph.initializer}
    inputs = {i.name: i for i in proto.graph.input if i.name not in initializers}
    check_input_names("shapes", shapes, inputs)
    check_input_names("constants", constants, inputs)
    shape_names, new_name_of_variable = (
        names_that_decide_shapes(graph, ONNX),
        updates_of_variables(graph),
    )
    updated_names = [
        n.args[0].name
        for n in nodes_of_graph(graph)
        if n.operator == ONNX.resolve_version(_UPDATE, 1)
    ]
    if invalid_targets := [
        name
        for name in updated_names
        if name not in new_name_of_variable or name not in initializers
    ]:
        raise check.value_error(
            f"CopyVarUpdate changes {invalid_targets[0]!r}, which is no initializer of the "
            "outermost graph",
            "give it a tensor that has values to begin with, outside of graphs that are called",
        )
    variables = _send_to_device(
        {
            name: value
            for name, value in initializers.items()
            if name in new_name_of_variable
            or (jnp.issubdtype(value.dtype, jnp.floating) and name not in shape_names)
        }
    )
    constant_of_name = {name: v for name, v in initializers.items() if name not in variables}
    constant_of_name |= convert_constant_inputs(inputs, constants, shapes)
    open_inputs = {name: info for name, info in inputs.items() if name not in constants}
    if shape_inputs := [name for name in open_inputs if name in shape_names]:
        raise check.value_error(
            f"the values of input {', '.join(map(repr, shape_inputs))} decide shapes; as an IPU "
            "runs static graphs, they must be of type Constant",
            f"give them when converting: from_onnx(..., constants={{{shape_inputs[0]!r}: ...}})",
        )
    avals = find_input_avals(open_inputs, shapes)
    avals_to_trace = avals | {
        n: jax.ShapeDtypeStruct(v.shape, v.dtype) for n, v in variables.items()
    }
    result = fold_constants(
        Evaluation(ONNX, scopes_of_onnx_node), ONNX, graph, avals_to_trace, constant_of_name
    )
    return ConvertedGraph(result.graph, avals, variables, result.avals, result.constants)


def updates_of_variables(graph: Graph) -> dict[str, str]:
    """Returns the variables that `CopyVarUpdate` nodes update, with the name of the new value."""
    nodes = [node for node in graph.nodes if node.operator == ONNX.resolve_version(_UPDATE, 1)]
    return {node.args[0].name: node.results[0] for node in nodes}


def _send_to_device(values: Mapping[str, object]) -> dict[str, jax.Array]:
    """Returns the arrays on the device, sent in one transfer."""
    return dict(zip(values, jax.device_put(list(values.values())), strict=True))


def check_inputs(converted_graph: ConvertedGraph, inputs: Sequence[object]) -> list[jax.Array]:
    """Returns inputs as arrays of the shapes and dtypes that the graph was converted for.

    Raises:
      FrontendError: (a `ValueError`) the shapes or the number of inputs do not match.
    """
    if len(inputs) != len(converted_graph.inputs):
        raise check.value_error(
            f"the model takes {len(converted_graph.inputs)} inputs and is given {len(inputs)}",
            f"give {', '.join(converted_graph.inputs) or 'none'}, in this order",
        )
    arrays: list[jax.Array] = []
    for (name, aval), value in zip(converted_graph.inputs.items(), inputs, strict=True):
        try:
            array = jnp.asarray(value)
        except TypeError as error:
            raise check.wrong_type_error("an array", value, f"input {name!r}") from error
        if array.shape != aval.shape:
            raise check.value_error(
                f"input {name!r} has shape {array.shape} in the place of {aval.shape}",
                f"convert the model for it: from_onnx(..., shapes={{{name!r}: {array.shape}}})",
            )
        arrays.append(array.astype(aval.dtype))
    return arrays


def find_scope_parts(graph: Graph) -> tuple[Part, ...]:
    """Returns the scopes that hold operators, once for each time the graph enters them."""
    parts: list[Part] = []
    for node in graph.nodes:
        part = Part(node.scope, node.marks.get(STAGE))
        if (part.name or part.stage is not None) and (not parts or parts[-1] != part):
            parts.append(part)
    return tuple(parts)


def _make_operator_resolver(proto: onnx.ModelProto) -> Callable[[str, str], str]:
    return functools.partial(resolve_operator, proto)
