"""Parsing and checking of ONNX models, with external data read and functions inlined."""

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

from ipujax.doors.models import check
from ipujax.doors.onnx.onnx_nodes import scope_of_node
from ipujax.doors.onnx.operators import ONNX
from ipujax.ground import FrontendError

_MAX_GRAPH_NESTING = 10
"""The maximum nesting of graphs: loops are traced twice on each level."""

_MAX_INLINED_NODES = 1_000_000
"""The maximum number of nodes after functions are inlined."""

_MAX_LISTED_NODES = 20
"""The maximum number of nodes that an error lists for one unknown operator."""

_MAX_CHECKER_MESSAGE = 400
"""The maximum number of characters shown of a message of ONNX's checker."""


OperatorSets = onnx.ModelProto | onnx.FunctionProto
"""A protobuf that declares the operator set versions of its nodes."""


def read_onnx_model(source: object, *, check_types: bool = True) -> onnx.ModelProto:
    """Reads a model from a path, bytes or a `ModelProto`, checks it and inlines its functions.

    Args:
      source: the path, the bytes or the `ModelProto`.
      check_types: whether to check operand types against those that ONNX lists.

    Raises:
      FrontendError: (a `ValueError`) see `from_onnx`.
      FrontendTypeError: (a `TypeError`) the source is of another type.
    """
    model, folder = _parse_model(source)
    _check_nesting(model)
    _check_functions(model)
    _check_operators_exist(model)
    _check_opset_version(model)
    _read_external_tensors(model, folder)
    _check_with_onnx(model, check_types)
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def opset_version_of(model: OperatorSets, domain: str = "") -> int:
    """Returns the version of a domain's operators that a model or function uses."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return max((o.version for o in model.opset_import if o.domain in names), default=1)


def _parse_model(source: object) -> tuple[onnx.ModelProto, Path | None]:
    if isinstance(source, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return copy, None
    folder = None
    if isinstance(source, str | os.PathLike):
        path = Path(os.fspath(source))
        if not path.is_file():
            raise check.value_error(
                f"there is no file {str(path)!r}", "give the path of an ONNX model"
            )
        source, folder = path.read_bytes(), path.parent
    kinds = (bytes, bytearray, memoryview)
    if not isinstance(source, kinds):
        raise check.wrong_type_error("a path, bytes or an onnx.ModelProto", source, "the model")
    try:
        model = onnx.load_model_from_string(bytes(source))
    except Exception as error:
        raise FrontendError(
            f"these bytes are no ONNX model: {error}", fix="is the file truncated?"
        ) from error
    if not model.HasField("graph"):
        raise check.value_error(
            "these bytes are no ONNX model: there is no graph in them", "is the file truncated?"
        )
    return model, folder


def _read_external_tensors(model: onnx.ModelProto, folder: Path | None) -> None:
    """Reads tensors stored in other files, from the model's own folder only."""
    for tensor in filter(onnx.external_data_helper.uses_external_data, _tensors_of_model(model)):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if folder is None:
            raise check.value_error(
                f"the values of {tensor.name!r} lie in the file {location!r}, and the model has no "
                "folder",
                "give the path of the model's file",
            )
        if not _is_file_in_folder(folder, location):
            raise check.value_error(
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


def _is_file_in_folder(folder: Path, location: str) -> bool:
    if not location or "\0" in location:
        return False
    target = (folder / location).resolve()
    return target.is_relative_to(folder.resolve()) and target.is_file()


def _walk_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yields nodes and the nodes of their inner graphs."""
    for node in nodes:
        yield node
        for inner_graph in _graphs_of_attributes(node):
            yield from _walk_nodes(inner_graph.node)


def _graphs_of_attributes(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            yield from (attribute.g, *attribute.graphs)


def _nodes_of_model(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yields the nodes of the graph, of the functions, and of their inner graphs."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        yield from _walk_nodes(nodes)


def _check_nesting(model: onnx.ModelProto) -> None:
    """Checks how deep graphs are nested, before any recursive walk along them."""
    level = [model.graph.node, *(function.node for function in model.functions)]
    for _ in range(_MAX_GRAPH_NESTING + 1):
        level = [
            inner_graph.node
            for nodes in level
            for node in nodes
            for inner_graph in _graphs_of_attributes(node)
        ]
    if level:
        raise check.value_error(
            f"the model has graphs in graphs, more than {_MAX_GRAPH_NESTING} levels deep",
            "export it with fewer nested branches and loops",
        )


def _check_functions(model: onnx.ModelProto) -> None:
    """Checks the inlined size of functions: nested calls can make a small file endless."""
    functions = {(f.domain, f.name): list(_walk_nodes(f.node)) for f in model.functions}
    calls = {
        name: {(node.domain, node.op_type) for node in nodes} & functions.keys()
        for name, nodes in functions.items()
    }
    sizes: dict[tuple[str, str], int] = {}

    def count_inlined_nodes(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(sizes.get((node.domain, node.op_type), 1) for node in nodes)

    try:
        for name in graphlib.TopologicalSorter(calls).static_order():
            sizes[name] = count_inlined_nodes(functions[name])
    except graphlib.CycleError as error:
        raise check.value_error(
            "a function of the model must not be recursive, and one calls itself", "export it again"
        ) from error
    if (size := count_inlined_nodes(_walk_nodes(model.graph.node))) > _MAX_INLINED_NODES:
        raise check.value_error(
            f"the model's functions written out are {size} nodes", "export a smaller model"
        )


def _tensors_of_model(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yields all tensors of a model: initializers, and those in attributes."""
    yield from model.graph.initializer
    for node in _nodes_of_model(model):
        for inner_graph in _graphs_of_attributes(node):
            yield from inner_graph.initializer
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)


def _check_with_onnx(model: onnx.ModelProto, check_types: bool) -> None:
    try:
        onnx.checker.check_model(model, skip_opset_compatibility_check=True)
        onnx.shape_inference.infer_shapes(_copy_without_values(model), check_type=check_types)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        message = " ".join(str(error).split())
        raise FrontendError(
            f"the model is broken: {message[:_MAX_CHECKER_MESSAGE]}", fix="export it again"
        ) from error


def _check_opset_version(model: onnx.ModelProto) -> None:
    version, newest = opset_version_of(model), onnx.defs.onnx_opset_version()
    if version > newest:
        raise check.value_error(
            f"the model is of opset {version}, and the package onnx knows none after {newest}",
            "install a newer onnx",
        )


def resolve_operator(model: OperatorSets, domain: str, name: str) -> str:
    """Returns the name that the table of operators has for an operator of a model or function."""
    full_name = name if domain in ("", "ai.onnx") else f"{domain}.{name}"
    return ONNX.resolve_version(full_name, opset_version_of(model, domain))


def _check_operators_exist(model: onnx.ModelProto) -> None:
    """Refuses operators that no JAX function computes: all of them, with their nodes.

    It runs before ONNX's own checker, which reports only the first unknown operator, and only of
    its own domain.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    unknown: dict[str, list[str]] = {}
    node_lists = [("", model, model.graph.node)]
    node_lists += [(f" of function {f.name}", f, f.node) for f in model.functions]
    for owner_text, operator_sets, nodes in node_lists:
        for node in _walk_nodes(nodes):
            operator = resolve_operator(operator_sets, node.domain, node.op_type)
            if operator not in ONNX and (node.domain, node.op_type) not in functions:
                unknown.setdefault(operator, []).append(f"{_describe_node(node)}{owner_text}")
    if unknown:
        lines = [f"{operator} in {_list_nodes(nodes)}" for operator, nodes in unknown.items()]
        raise check.value_error(
            f"there is no JAX function for {len(lines)} of the model's operators: "
            + "; ".join(sorted(lines)),
            "export the model with other operators",
        )


def _describe_node(node: onnx.NodeProto) -> str:
    name = f"node {node.name!r}" if node.name else f"output {next(iter(node.output), '')!r}"
    return f"{scope_of_node(node) or 'the outermost scope'} ({name})"


def _list_nodes(nodes: Sequence[str]) -> str:
    unlisted_count = len(nodes) - _MAX_LISTED_NODES
    listed = ", ".join(nodes[:_MAX_LISTED_NODES])
    return f"{listed} and {unlisted_count} more" if unlisted_count > 0 else listed


def _copy_without_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copies a model without the values of its initializers, so that type checks are quick."""
    stripped = onnx.ModelProto(ir_version=model.ir_version)
    stripped.opset_import.extend(model.opset_import)
    stripped.functions.extend(model.functions)
    graph = model.graph
    stripped.graph.name = graph.name
    stripped.graph.node.extend(graph.node)
    stripped.graph.output.extend(graph.output)
    stripped.graph.value_info.extend(graph.value_info)
    input_names = {info.name for info in graph.input}
    stripped.graph.input.extend(graph.input)
    stripped.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in graph.initializer
        if t.name not in input_names
    )
    return stripped
