"""The class `Builder`, which builds an ONNX graph node by node."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper

from ipujax.doors.onnx import REPLICAS, ConvertedGraph, convert_graph, read_onnx_model
from ipujax.ground import (
    FrontendError,
    FrontendTypeError,
    MissingAttributeError,
    PopARTError,
    api_boundary,
    files,
    suggest_closest_name,
)
from ipujax.popart.builder.attributes import Attributes, write_node_attribute
from ipujax.popart.builder.operator_signatures import Operation, Request
from ipujax.popart.builder.opsets import Opset, graphcore_opset, onnx_opset
from ipujax.popart.builder.tensors import Tensors
from ipujax.popart.builder.window_ops import check_windows
from ipujax.popart.debug import Context, context_path
from ipujax.popart.graph_json import NAMELESS
from ipujax.popart.options import RecomputeType
from ipujax.popart.popart_checks import check, convert_frontend_errors
from ipujax.popart.popart_log import getLogger
from ipujax.popart.step_inputs import read_broadcast_inputs, write_broadcast_inputs
from ipujax.popart.tensor_info import TensorInfo, to_data_type

DEFAULT_OPSETS = {"ai.onnx": 10, "ai.graphcore": 1}
"""The versions of domains that a builder's models have, as in the original."""

_DOMAINS = (*DEFAULT_OPSETS, "ai.onnx.ml")
_log = getLogger("builder")
_LONGEST = 60
"""The number of characters of an invalid model that an error shows."""


@check.guard
class Builder(Attributes, Tensors):
    """A builder of models for sessions.

    Its `aiOnnx`, `aiOnnxOpset10` (or another number) and `aiGraphcore` add operators. If neither
    `opsets` nor a model gives the version of ONNX, the first node's version is used.

    Args:
      modelProtoOrFilename: a model to extend, as bytes or a path.
      opsets: versions by domain, `{"ai.onnx": 11, "ai.graphcore": 1}`.

    Raises:
      PopARTError: (a `ValueError`) no model, or another domain.
    """

    def __init__(
        self,
        modelProtoOrFilename: bytes | str | None = None,
        opsets: Mapping[str, int] | None = None,
    ):
        if opsets is not None:
            check.require_instance(opsets, Mapping, "opsets", "a dict from domains to versions")
        for domain in opsets or {}:
            check.require_one_of(domain, _DOMAINS, "a domain in opsets")
        self._opsets = {**DEFAULT_OPSETS, **(opsets or {})}
        self._graph = onnx.GraphProto(name=NAMELESS)
        self._outputs: list[str] = []
        self._replicas: int | None = None
        self._known: ConvertedGraph | None = None  # shapes, until the graph changes
        self._names: set[str] = set()
        self._scopes: list[str] = []
        self._marks: dict[str, Any] = {}
        self._parent: Tensors | None = None
        self._declared: set[str] = set()  # inputs that are tensors of outer graphs
        self._broadcast: set[str] = set()  # inputs that all replicas get
        self._chosen: list[int] = []  # the version of ONNX; shared with inner graphs
        if "ai.onnx" in (opsets or {}):
            self._chosen.append(self._opsets["ai.onnx"])
        if modelProtoOrFilename is not None:
            self._load_model(modelProtoOrFilename)

    @property
    def aiOnnx(self) -> Opset:
        """The operators of ONNX, of the version that `opsets` names, or the model has."""
        return self._get_onnx_opset("aiOnnx", self.aiOnnxOpsetVersion)

    @property
    def aiGraphcore(self) -> Opset:
        """The operators of Graphcore's own domain."""
        return graphcore_opset(self, self._opsets["ai.graphcore"])

    @property
    def aiGraphcoreOpset1(self) -> Opset:
        """The operators of the only version of Graphcore's own domain."""
        return self.aiGraphcore

    def __getattr__(self, name: str) -> Opset:
        number = name.removeprefix("aiOnnxOpset")
        if number == name or not number.isdecimal():
            hint = suggest_closest_name(name, dir(self))
            raise MissingAttributeError(f"Builder has no attribute {name!r}{hint}")
        return self._get_onnx_opset(name, int(number))

    @property
    def aiOnnxOpsetVersion(self) -> int:
        """The version of ONNX that the model has."""
        return self._chosen[0] if self._chosen else self._opsets["ai.onnx"]

    # --- graphs ---------------------------------------------------------------------------------

    def setGraphName(self, name: str) -> None:
        """Sets the name of the graph."""
        self._graph.name = check.require_text(name, "the name of a graph")

    def createSubgraphBuilder(self) -> Builder:
        """Creates a builder of an inner graph, for `logical_if`, `loop`, `scan` or `call`.

        The operator takes the graph as it is when its node is added.
        """
        inner_builder = Builder(opsets=self._opsets)
        inner_builder._parent, inner_builder._names, inner_builder._chosen = (
            self,
            self._names,
            self._chosen,
        )
        return inner_builder

    # --- models ---------------------------------------------------------------------------------

    @api_boundary
    def getModelProto(self) -> bytes:
        """Returns the model as the bytes of a file."""
        model = self._make_model()
        for name in self._outputs:
            info = self._infer_info(name)
            model.graph.output.append(
                onnx.helper.make_tensor_value_info(name, info.data_type().onnx, info.shape())
            )
        return model.SerializeToString()

    def saveModelProto(self, filename: str | Path) -> None:
        """Writes the model to a file."""
        with files.replace_file(filename) as file:
            file.write(self.getModelProto())

    # --- nodes ----------------------------------------------------------------------------------

    def add_node(
        self, operation: Operation, arguments: Mapping[str, object], version: int
    ) -> str | list[str]:
        """Adds a node of an operator, and returns the name of its result, or their names.

        Args:
          operation: the operator.
          arguments: the arguments of the call, by name.
          version: the version of its domain; all nodes of ONNX's own domain have the same.

        Raises:
          PopARTError: (a `ValueError`) another number of inputs or outputs, or unknown tensors.
        """
        request = operation.build_request(arguments)
        domain = operation.domain or "ai.onnx"
        _log.debug(f"Adding {domain}.{operation.operator} of version {version} to the builder")
        self._check_node_counts(operation, request)
        if not operation.domain:
            shapes = [self._find_declared_shape(name) for name in request.inputs]
            check_windows(operation.operator, request.inputs, shapes, request.attributes)
        name = request.name or operation.operator
        results = [self._make_unique_name(f"{name}:{number}") for number in range(request.outputs)]
        node = onnx.helper.make_node(
            operation.operator,
            request.inputs,
            results,
            name=self._prefix_scopes(name) if request.name or self._scopes else "",
            domain=operation.domain,
        )
        for name, value in {**self._marks, **request.attributes}.items():
            if isinstance(value, Builder):
                value = value.inner_graph(captures=operation.operator != "Call")
            if operation.stores_attribute(name, value):
                write_node_attribute(node, name, value, operation.attribute_kind(name).number)
        self._graph.node.append(node)
        if not operation.domain and not self._chosen:
            self._chosen.append(version)
        self._forget_inferred_shapes()
        return results[0] if operation.outputs == 1 else results

    def inner_graph(self, captures: bool) -> onnx.GraphProto:
        """Returns the graph as an attribute of a node: its outputs are names alone.

        Args:
          captures: whether to leave out inputs that are tensors of outer graphs, as ONNX does.
        """
        graph = onnx.GraphProto()
        graph.CopyFrom(self._graph)
        omitted_inputs = self._declared if captures else ()
        del graph.input[:]
        graph.input.extend(i for i in self._graph.input if i.name not in omitted_inputs)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._outputs)
        return graph

    def reshape_const(
        self, aiOnnx: Opset, args: Sequence[str], shape: Iterable[int], debugContext: Context = ""
    ) -> str:
        """Reshapes a tensor to a constant shape."""
        sizes = aiOnnx.constant(
            np.asarray(list(shape), np.int64), f"{context_path(debugContext)}_const"
        )
        return aiOnnx.reshape([args[0], sizes], debugContext=debugContext)

    def checkpointOutput(self, nodeOutputNames: Iterable[str]) -> list[str]:
        """Keeps tensors where others are recomputed; returns a new name for each."""
        with self.recomputeOutput(RecomputeType.Checkpoint):
            return [self.aiOnnx.identity([name]) for name in nodeOutputNames]

    @contextlib.contextmanager
    def nameScope(self, name: str) -> Generator[None]:
        """Adds a name in front of the names of the nodes in a `with` block."""
        self._scopes.append(check.require_text(name, "the name of a scope"))
        try:
            yield
        finally:
            self._scopes.pop()

    def getNameScope(self, name: str = "") -> str:
        """Returns a name with the enclosing name scopes in front."""
        return self._prefix_scopes(name)

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Sets the number of replicas of a session, for the shapes of collectives' results."""
        self._replicas = check.require_integer(replicationFactor, "replicationFactor", at_least=1)
        self._forget_inferred_shapes()

    # --- missing methods -------------------------------------------------------------------------

    def customOp(self, *args: object, **kwargs: object) -> str | list[str]:
        """Raises an error: custom operators of the original are compiled for an IPU."""
        raise check.value_error(
            "customOp: custom operators compiled for IPUs cannot run here",
            "use the operators of builder.aiOnnx",
        )

    def saveInitializersExternally(self, ids: Iterable[str], filename: str) -> None:
        """Raises an error: a builder's weights are in its model."""
        raise check.value_error(
            f"saveInitializersExternally({list(ids)}): weights are not written beside the model",
            "use saveModelProto, and onnx.save(..., save_as_external_data=True)",
        )

    # --- internals ------------------------------------------------------------------------------

    def _load_model(self, source: bytes | str) -> None:
        try:
            model = read_onnx_model(source, check_types=False)
        except (FrontendError, FrontendTypeError) as error:
            raise PopARTError(
                f"Failed to load a ModelProto from the string {_shorten_repr(source)}: "
                f"{error.what}. Check that it is either a valid path to an existing onnx model "
                "file, or is a valid onnx ModelProto string.",
                fix=error.fix,
            ) from error
        self._graph.CopyFrom(model.graph)
        self._outputs = [output.name for output in model.graph.output]
        del self._graph.output[:]
        model_opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
        self._opsets |= model_opsets
        self._chosen[:] = [self._opsets["ai.onnx"]]
        self._names |= self._list_tensor_names()
        self._broadcast |= read_broadcast_inputs(model)

    def _get_onnx_opset(self, name: str, version: int) -> Opset:
        if self._chosen and self._chosen[0] != version:
            raise check.value_error(
                f"Invalid opset '{name}' selected. Opset for domain ai.onnx already defined as "
                f"{self._chosen[0]}",
                f"use aiOnnxOpset{self._chosen[0]} everywhere",
            )
        return onnx_opset(self, version)

    def _check_node_counts(self, operation: Operation, request: Request) -> None:
        least, greatest = operation.inputs
        if not least <= len(request.inputs) <= greatest:
            raise PopARTError(
                f"{operation.operator} has invalid number of inputs {len(request.inputs)}. Must be "
                f"between {least} and {greatest}"
            )
        for name in request.inputs:
            if name and name not in self._names:
                raise PopARTError(
                    f"Unknown tensor {name!r} (input of {operation.operator})",
                    fix="use names that this builder returned",
                )
        least, greatest = operation.results
        if operation.outputs is None and not least <= request.outputs <= greatest:
            raise PopARTError(
                f"{operation.operator} has an invalid number of outputs {request.outputs}. Must be "
                f"between {least} and {greatest}"
            )

    def _make_model(self) -> onnx.ModelProto:
        versions = {**self._opsets, "ai.onnx": self.aiOnnxOpsetVersion}
        imports = [
            onnx.helper.make_opsetid("" if domain == "ai.onnx" else domain, version)
            for domain, version in versions.items()
        ]
        model = onnx.helper.make_model(self._graph, opset_imports=imports)
        write_broadcast_inputs(self._broadcast, model)
        return model

    def _infer_info(self, name: str) -> TensorInfo:
        if name not in self._list_tensor_names():
            raise PopARTError(
                f"Tensor {name!r} is not an input or output tensor. Must be one of "
                f"{sorted(self._list_tensor_names())}"
            )
        if self._parent is not None:
            raise check.value_error(
                f"the shape of {name!r} depends on the outer graph", "ask that graph's builder"
            )
        if self._known is None:
            with convert_frontend_errors():
                settings = {} if self._replicas is None else {REPLICAS: self._replicas}
                self._known = convert_graph(self._make_model(), {}, {}, settings)
        model = self._known
        for values in (model.avals, model.variables, model.constants):
            if name in values:
                return TensorInfo(to_data_type(values[name].dtype), values[name].shape)
        raise check.value_error(f"the shape of {name!r} cannot be inferred", "use it in an output")

    def _forget_inferred_shapes(self) -> None:
        self._known = None

    def _prefix_scopes(self, name: str) -> str:
        return "/".join([*self._scopes, name])

    def _make_unique_name(self, name: str) -> str:
        name = self._prefix_scopes(name)
        number, unique_name = 0, name
        while unique_name in self._names:
            number += 1
            unique_name = f"{name}/{number}"
        self._names.add(unique_name)
        self._forget_inferred_shapes()
        return unique_name


def _shorten_repr(source: object) -> str:
    text = repr(source)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
