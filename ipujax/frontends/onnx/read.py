"""ONNX models as they come: read, checked, made plain."""

from __future__ import annotations

import graphlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import onnx
import onnx.checker
import onnx.defs
import onnx.external_data_helper
import onnx.helper
import onnx.inliner
import onnx.shape_inference
from onnx import AttributeProto

from ipujax.errors import FrontendError
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.nodes import scope_of
from ipujax.frontends.onnx.operators import ONNX

_DEEPEST = 10
"""How deep graphs may be in one another: loops are traced twice on each level."""

_MOST_NODES = 1_000_000
"""How many nodes a model may have once its functions are written out."""

_MOST_NODES_LISTED = 20
"""How many nodes of an unknown operator a message names."""

_LONGEST = 400
"""How many characters are shown of what ONNX's own checker says."""


OperatorSets = onnx.ModelProto | onnx.FunctionProto
"""What says which versions of operators its nodes are of."""


def read(source: object, *, typed: bool = True) -> onnx.ModelProto:
    """The model of a path, of bytes or of a `ModelProto`, whole and without functions.

    Args:
      source: one of these.
      typed: whether operators must be given the types that ONNX lists for them.

    Raises:
      FrontendError: (a `ValueError`) see `from_onnx`.
      FrontendTypeError: (a `TypeError`) something else.
    """
    model, folder = _parsed(source)
    _check_nesting(model)
    _check_functions(model)
    _check_operators(model)
    _check_opset(model)
    _read_external(model, folder)
    _check(model, typed)
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def opset_of(model: OperatorSets, domain: str = "") -> int:
    """The version of a domain's operators that a model or a function of it uses."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return max((o.version for o in model.opset_import if o.domain in names), default=1)


def _parsed(source: object) -> tuple[onnx.ModelProto, Path | None]:
    if isinstance(source, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return copy, None
    folder = None
    if isinstance(source, str | os.PathLike):
        path = Path(os.fspath(source))
        if not path.is_file():
            raise check.refuse(f"there is no file {str(path)!r}", "give the path of an ONNX model")
        source, folder = path.read_bytes(), path.parent
    kinds = (bytes, bytearray, memoryview)
    if not isinstance(source, kinds):
        raise check.other_than("a path, bytes or an onnx.ModelProto", source, "the model")
    try:
        model = onnx.load_model_from_string(bytes(source))
    except Exception as error:
        raise FrontendError(
            f"these bytes are no ONNX model: {error}", fix="is the file truncated?"
        ) from error
    if not model.HasField("graph"):
        raise check.refuse(
            "these bytes are no ONNX model: there is no graph in them", "is the file truncated?"
        )
    return model, folder


def _read_external(model: onnx.ModelProto, folder: Path | None) -> None:
    """Reads tensors that lie in other files, from the model's own folder alone."""
    for tensor in filter(onnx.external_data_helper.uses_external_data, _tensors(model)):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if folder is None:
            raise check.refuse(
                f"the values of {tensor.name!r} lie in the file {location!r}, and the model has no "
                "folder",
                "give the path of the model's file",
            )
        if not _is_inside(folder, location):
            raise check.refuse(
                f"the values of {tensor.name!r} lie in {location!r}, which is no file in the "
                "model's folder",
                "put the file beside the model",
            )
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:
            raise FrontendError(
                f"the values of {tensor.name!r} cannot be read from {location!r}: {error}",
                fix="export the model again",
            ) from error
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")


def _is_inside(folder: Path, location: str) -> bool:
    if not location or "\0" in location:
        return False
    target = (folder / location).resolve()
    return target.is_relative_to(folder.resolve()) and target.is_file()


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for inner in _inner(node):
            yield from _nodes(inner.node)


def _inner(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            yield from (attribute.g, *attribute.graphs)


def _all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of the graph, of the functions, and of the graphs inside them."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        yield from _nodes(nodes)


def _check_nesting(model: onnx.ModelProto) -> None:
    """Before all that walks along graphs, as that goes down with them."""
    level = [model.graph.node, *(function.node for function in model.functions)]
    for _ in range(_DEEPEST + 1):
        level = [inner.node for nodes in level for node in nodes for inner in _inner(node)]
    if level:
        raise check.refuse(
            f"the model has graphs in graphs, more than {_DEEPEST} levels deep",
            "export it with fewer branches and loops in one another",
        )


def _check_functions(model: onnx.ModelProto) -> None:
    """Functions that call others several times each can make an endless graph of a small file."""
    functions = {(f.domain, f.name): list(_nodes(f.node)) for f in model.functions}
    calls = {
        name: {(node.domain, node.op_type) for node in nodes} & functions.keys()
        for name, nodes in functions.items()
    }
    sizes: dict[tuple[str, str], int] = {}

    def written_out(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(sizes.get((node.domain, node.op_type), 1) for node in nodes)

    try:
        for name in graphlib.TopologicalSorter(calls).static_order():
            sizes[name] = written_out(functions[name])
    except graphlib.CycleError as error:
        raise check.refuse(
            "a function of the model must not be recursive, and one calls itself", "export it again"
        ) from error
    if (size := written_out(_nodes(model.graph.node))) > _MOST_NODES:
        raise check.refuse(
            f"the model's functions written out are {size} nodes", "export a smaller model"
        )


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a model: initializers, and those in attributes."""
    yield from model.graph.initializer
    for node in _all_nodes(model):
        for inner in _inner(node):
            yield from inner.initializer
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)


def _check(model: onnx.ModelProto, typed: bool) -> None:
    try:
        onnx.checker.check_model(model, skip_opset_compatibility_check=True)
        onnx.shape_inference.infer_shapes(_without_values(model), check_type=typed)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        told = " ".join(str(error).split())
        raise FrontendError(
            f"the model is broken: {told[:_LONGEST]}", fix="export it again"
        ) from error


def _check_opset(model: onnx.ModelProto) -> None:
    version, newest = opset_of(model), onnx.defs.onnx_opset_version()
    if version > newest:
        raise check.refuse(
            f"the model is of opset {version}, and the package onnx knows none after {newest}",
            "install a newer onnx",
        )


def resolve_operator(model: OperatorSets, domain: str, name: str) -> str:
    """Returns the name that the table of operators has for an operator of a model or function."""
    full_name = name if domain in ("", "ai.onnx") else f"{domain}.{name}"
    return ONNX.resolve(full_name, opset_of(model, domain))


def _check_operators(model: onnx.ModelProto) -> None:
    """Refuses operators that no JAX function computes: all of them, with their nodes.

    This comes before ONNX's own checker, which names the first unknown operator of its own domain,
    and no operator of another domain.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    unknown: dict[str, list[str]] = {}
    places = [("", model, model.graph.node)]
    places += [(f" of function {f.name}", f, f.node) for f in model.functions]
    for place, operator_sets, nodes in places:
        for node in _nodes(nodes):
            operator = resolve_operator(operator_sets, node.domain, node.op_type)
            if operator not in ONNX and (node.domain, node.op_type) not in functions:
                unknown.setdefault(operator, []).append(f"{_describe_node(node)}{place}")
    if unknown:
        lines = [f"{operator} in {_list_nodes(nodes)}" for operator, nodes in unknown.items()]
        raise check.refuse(
            f"there is no JAX function for {len(lines)} of the model's operators: "
            + "; ".join(sorted(lines)),
            "export the model with other operators",
        )


def _describe_node(node: onnx.NodeProto) -> str:
    name = f"node {node.name!r}" if node.name else f"output {next(iter(node.output), '')!r}"
    return f"{scope_of(node) or 'the outermost scope'} ({name})"


def _list_nodes(nodes: Sequence[str]) -> str:
    more = len(nodes) - _MOST_NODES_LISTED
    listed = ", ".join(nodes[:_MOST_NODES_LISTED])
    return f"{listed} and {more} more" if more > 0 else listed


def _without_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with the types of its initializers alone: what checking types needs to be quick."""
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph = model.graph
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.output.extend(graph.output)
    light.graph.value_info.extend(graph.value_info)
    given = {info.name for info in graph.input}
    light.graph.input.extend(graph.input)
    light.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in graph.initializer
        if t.name not in given
    )
    return light
