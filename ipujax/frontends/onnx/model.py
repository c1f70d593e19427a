"""An ONNX model as a `Model`."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import onnx

from ipujax.doors.graphs import Evaluation, Graph, Node, filled, module_scope
from ipujax.frontends.checks import check
from ipujax.frontends.model import Model, Part, Tree, Variables
from ipujax.frontends.onnx.dtypes import narrowed
from ipujax.frontends.onnx.fold import all_nodes, decide_shapes, folded
from ipujax.frontends.onnx.inputs import Shapes, avals_of, check_names, constants_of
from ipujax.frontends.onnx.nodes import graph_of, to_array
from ipujax.frontends.onnx.operators import ONNX
from ipujax.frontends.onnx.read import read, resolve_operator
from ipujax.pipelines.places import stage_scope

STAGE = "__pipeline_stage"
"""The attribute of a node that says its pipeline stage (PopART's own name)."""

_UPDATE = "ai.graphcore.CopyVarUpdate"


@dc.dataclass(frozen=True, eq=False)
class Converted:
    """A model's graph, ready to be evaluated.

    Attributes:
      graph: of what is not known before it runs.
      inputs: shapes and dtypes of the inputs, by their names, in order.
      variables: initializers of floating point, and those that the model changes.
      avals: of all names.
      constants: of the names whose values are known.
    """

    graph: Graph
    inputs: Mapping[str, jax.ShapeDtypeStruct]
    variables: Variables
    avals: Mapping[str, jax.ShapeDtypeStruct]
    constants: Mapping[str, Any]

    def named(
        self, evaluation: Evaluation, variables: Variables, inputs: Sequence[Any], key: Any
    ) -> dict[str, Any]:
        """The values that all names of the graph have."""
        given = dict(zip(self.inputs, inputs, strict=True))
        return evaluation(self.graph, {**variables, **given}, key)


def model_of(source: Any, shapes: Shapes, constants: Mapping[str, Any]) -> Model:
    """As `from_onnx`."""
    found = converted(read(source), shapes, constants)
    evaluation = Evaluation(ONNX, scopes)

    def function(
        variables: Variables, inputs: tuple[Tree, ...], key: Any
    ) -> tuple[Tree, Variables]:
        arrays = checked(found, inputs)
        named = found.named(evaluation, variables, arrays, key)
        outputs = filled(found.graph.outputs, named)
        return tuple(jnp.asarray(narrowed(value)) for value in outputs), variables

    return Model(found.variables, tuple(found.variables), function, lambda: parts_of(found.graph))


def scopes(node: Node) -> tuple[str, ...]:
    """The scopes that a node's operations are in: its stage, and its name's."""
    stage = node.marks.get(STAGE)
    return module_scope(node) if stage is None else (stage_scope(stage), *module_scope(node))


def converted(
    proto: onnx.ModelProto,
    shapes: Shapes,
    constants: Mapping[str, Any],
    marks: Mapping[str, Any] | None = None,
) -> Converted:
    """The graph of a model that has been read, with all names' shapes.

    Args:
      proto: the model.
      shapes: see `from_onnx`.
      constants: see `from_onnx`.
      marks: what all nodes are told, such as the number of replicas.

    Raises:
      FrontendError: (a `ValueError`) see `from_onnx`.
    """
    graph = graph_of(proto.graph, _resolver(proto), marks or {})
    initializers = {tensor.name: to_array(tensor) for tensor in proto.graph.initializer}
    inputs = {i.name: i for i in proto.graph.input if i.name not in initializers}
    check_names("shapes", shapes, inputs)
    check_names("constants", constants, inputs)
    decisive, changed = decide_shapes(graph, ONNX), changes(graph)
    updated = [n.args[0].name for n in all_nodes(graph) if n.operator == ONNX.resolve(_UPDATE, 1)]
    if other := [name for name in updated if name not in changed or name not in initializers]:
        raise check.refuse(
            f"CopyVarUpdate changes {other[0]!r}, which is no initializer of the outermost graph",
            "give it a tensor that has values to begin with, outside of graphs that are called",
        )
    variables = _on_device(
        {
            name: value
            for name, value in initializers.items()
            if name in changed
            or (jnp.issubdtype(value.dtype, jnp.floating) and name not in decisive)
        }
    )
    known = {name: v for name, v in initializers.items() if name not in variables}
    known |= constants_of(inputs, constants, shapes)
    open_inputs = {name: info for name, info in inputs.items() if name not in constants}
    if shaping := [name for name in open_inputs if name in decisive]:
        raise check.refuse(
            f"the values of input {', '.join(map(repr, shaping))} decide shapes; as an IPU runs "
            "static graphs, they must be of type Constant",
            f"give them when converting: from_onnx(..., constants={{{shaping[0]!r}: ...}})",
        )
    avals = avals_of(open_inputs, shapes)
    given = avals | {n: jax.ShapeDtypeStruct(v.shape, v.dtype) for n, v in variables.items()}
    result = folded(Evaluation(ONNX, scopes), ONNX, graph, given, known)
    return Converted(result.graph, avals, variables, result.avals, result.constants)


def changes(graph: Graph) -> dict[str, str]:
    """The variables that nodes change, whatever their outputs are for, and what they become."""
    nodes = [node for node in graph.nodes if node.operator == ONNX.resolve(_UPDATE, 1)]
    return {node.args[0].name: node.results[0] for node in nodes}


def _on_device(values: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The arrays, all sent at once."""
    return dict(zip(values, jax.device_put(list(values.values())), strict=True))


def checked(found: Converted, inputs: Sequence[Any]) -> list[jax.Array]:
    """Inputs as arrays of the shapes and dtypes that the graph was made for.

    Raises:
      FrontendError: (a `ValueError`) other shapes, or another number of them.
    """
    if len(inputs) != len(found.inputs):
        raise check.refuse(
            f"the model takes {len(found.inputs)} inputs and is given {len(inputs)}",
            f"give {', '.join(found.inputs) or 'none'}, in this order",
        )
    arrays: list[jax.Array] = []
    for (name, aval), value in zip(found.inputs.items(), inputs, strict=True):
        try:
            array = jnp.asarray(value)
        except TypeError as error:
            raise check.other_than("an array", value, f"input {name!r}") from error
        if array.shape != aval.shape:
            raise check.refuse(
                f"input {name!r} has shape {array.shape} in the place of {aval.shape}",
                f"convert the model for it: from_onnx(..., shapes={{{name!r}: {array.shape}}})",
            )
        arrays.append(array.astype(aval.dtype))
    return arrays


def parts_of(graph: Graph) -> tuple[Part, ...]:
    """The scopes that hold operators, each time that the graph comes to them."""
    parts: list[Part] = []
    for node in graph.nodes:
        part = Part(node.scope, node.marks.get(STAGE))
        if (part.name or part.stage is not None) and (not parts or parts[-1] != part):
            parts.append(part)
    return tuple(parts)


def _resolver(proto: onnx.ModelProto) -> Callable[[str, str], str]:
    return functools.partial(resolve_operator, proto)
