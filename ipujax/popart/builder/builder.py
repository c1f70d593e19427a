"""`Builder`: a graph of ONNX, node by node."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper

from ipujax.checks.lines import api_boundary
from ipujax.errors import FrontendError, FrontendTypeError, MissingAttributeError, PopARTError
from ipujax.frontends.onnx.model import Converted, converted
from ipujax.frontends.onnx.operators.graphcore_collectives import REPLICAS
from ipujax.frontends.onnx.read import read
from ipujax.host import files
from ipujax.popart.builder.attributes import Attributes, write
from ipujax.popart.builder.opsets import Opset, graphcore_opset, onnx_opset
from ipujax.popart.builder.signatures import Operation, Request
from ipujax.popart.builder.tensors import Tensors
from ipujax.popart.builder.windows import check_windows
from ipujax.popart.checks import as_popart_errors, check
from ipujax.popart.debug import Context, path_of
from ipujax.popart.inputs import broadcast_inputs, write_broadcast
from ipujax.popart.log import getLogger
from ipujax.popart.options import RecomputeType
from ipujax.popart.serialized import NAMELESS
from ipujax.popart.tensor_info import TensorInfo, data_type_of

DEFAULT_OPSETS = {"ai.onnx": 10, "ai.graphcore": 1}
"""The versions of domains that a builder's models have, as in the original."""

_DOMAINS = (*DEFAULT_OPSETS, "ai.onnx.ml")
_log = getLogger("builder")
_LONGEST = 60
"""How much is shown of what is no model."""


@check.guard
class Builder(Attributes, Tensors):
    """Builds a model for a session.

    Its `aiOnnx`, `aiOnnxOpset10` (or another number) and `aiGraphcore` add operators. Where neither
    `opsets` nor a model says which version of ONNX there is, the first node does.

    Args:
      modelProtoOrFilename: a model to go on from, as bytes or a path.
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
            check.instance(opsets, Mapping, "opsets", "a dict from domains to versions")
        for domain in opsets or {}:
            check.one_of(domain, _DOMAINS, "a domain in opsets")
        self._opsets = {**DEFAULT_OPSETS, **(opsets or {})}
        self._graph = onnx.GraphProto(name=NAMELESS)
        self._outputs: list[str] = []
        self._replicas: int | None = None
        self._known: Converted | None = None  # shapes, until the graph changes
        self._names: set[str] = set()
        self._scopes: list[str] = []
        self._marks: dict[str, Any] = {}
        self._parent: Tensors | None = None
        self._declared: set[str] = set()  # inputs that are tensors of graphs around
        self._broadcast: set[str] = set()  # inputs that all replicas get
        self._chosen: list[int] = []  # the version of ONNX; shared with graphs inside
        if "ai.onnx" in (opsets or {}):
            self._chosen.append(self._opsets["ai.onnx"])
        if modelProtoOrFilename is not None:
            self._go_on(modelProtoOrFilename)

    @property
    def aiOnnx(self) -> Opset:
        """ONNX's operators, of the version that `opsets` names, or the model has."""
        return self._onnx("aiOnnx", self.aiOnnxOpsetVersion)

    @property
    def aiGraphcore(self) -> Opset:
        """Graphcore's own operators."""
        return graphcore_opset(self, self._opsets["ai.graphcore"])

    @property
    def aiGraphcoreOpset1(self) -> Opset:
        """Graphcore's own operators, of their only version."""
        return self.aiGraphcore

    def __getattr__(self, name: str) -> Opset:
        number = name.removeprefix("aiOnnxOpset")
        if number == name or not number.isdecimal():
            raise MissingAttributeError(f"Builder has no attribute {name!r}")
        return self._onnx(name, int(number))

    @property
    def aiOnnxOpsetVersion(self) -> int:
        """The version of ONNX that the model has."""
        return self._chosen[0] if self._chosen else self._opsets["ai.onnx"]

    # --- graphs ---------------------------------------------------------------------------------

    def setGraphName(self, name: str) -> None:
        """Names the graph."""
        self._graph.name = check.text(name, "the name of a graph")

    def createSubgraphBuilder(self) -> Builder:
        """A builder of a graph for an operator of this one: `logical_if`, `loop`, `scan`, `call`.

        The operator takes the graph as it is when its node is added.
        """
        inner = Builder(opsets=self._opsets)
        inner._parent, inner._names, inner._chosen = self, self._names, self._chosen
        return inner

    # --- models ---------------------------------------------------------------------------------

    @api_boundary
    def getModelProto(self) -> bytes:
        """The model, as the bytes of a file."""
        model = self._model()
        for name in self._outputs:
            info = self._info(name)
            model.graph.output.append(
                onnx.helper.make_tensor_value_info(name, info.data_type().onnx, info.shape())
            )
        return model.SerializeToString()

    def saveModelProto(self, filename: str | Path) -> None:
        """Writes the model to a file."""
        with files.replacing(filename) as file:
            file.write(self.getModelProto())

    # --- nodes ----------------------------------------------------------------------------------

    def add_node(self, operation: Operation, given: Mapping[str, Any], version: int) -> Any:
        """Adds a node of an operator; gives the name of its result, or their names.

        Args:
          operation: what it does.
          given: its parameters, by name.
          version: of its domain; of ONNX's own, that of all other nodes.

        Raises:
          PopARTError: (a `ValueError`) another number of inputs or outputs, or unknown tensors.
        """
        asked = operation.request(given)
        domain = operation.domain or "ai.onnx"
        _log.debug(f"Adding {domain}.{operation.operator} of version {version} to the builder")
        self._check(operation, asked)
        if not operation.domain:
            shapes = [self._shape_of(name) for name in asked.inputs]
            check_windows(operation.operator, asked.inputs, shapes, asked.attributes)
        name = asked.name or operation.operator
        results = [self._unique(f"{name}:{number}") for number in range(asked.outputs)]
        node = onnx.helper.make_node(
            operation.operator,
            asked.inputs,
            results,
            name=self._scoped(name) if asked.name or self._scopes else "",
            domain=operation.domain,
        )
        for name, value in {**self._marks, **asked.attributes}.items():
            if isinstance(value, Builder):
                value = value.inner_graph(captures=operation.operator != "Call")
            if operation.says(name, value):
                write(node, name, value, operation.kind(name).number)
        self._graph.node.append(node)
        if not operation.domain and not self._chosen:
            self._chosen.append(version)
        self._changed()
        return results[0] if operation.outputs == 1 else results

    def inner_graph(self, captures: bool) -> onnx.GraphProto:
        """The graph as an attribute of a node: its outputs are names alone.

        Args:
          captures: whether what it uses of the graphs around is no input, as ONNX has it.
        """
        graph = onnx.GraphProto()
        graph.CopyFrom(self._graph)
        left_out = self._declared if captures else ()
        del graph.input[:]
        graph.input.extend(i for i in self._graph.input if i.name not in left_out)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._outputs)
        return graph

    def reshape_const(
        self, aiOnnx: Opset, args: Sequence[str], shape: Iterable[int], debugContext: Context = ""
    ) -> str:
        """Reshapes a tensor to a shape that is known now."""
        sizes = aiOnnx.constant(np.asarray(list(shape), np.int64), f"{path_of(debugContext)}_const")
        return aiOnnx.reshape([args[0], sizes], debugContext=debugContext)

    def checkpointOutput(self, nodeOutputNames: Iterable[str]) -> list[str]:
        """Has tensors kept where others are computed again; gives for each a name of its values."""
        with self.recomputeOutput(RecomputeType.Checkpoint):
            return [self.aiOnnx.identity([name]) for name in nodeOutputNames]

    @contextlib.contextmanager
    def nameScope(self, name: str) -> Generator[None]:
        """Names the nodes inside a `with` after it."""
        self._scopes.append(check.text(name, "the name of a scope"))
        try:
            yield
        finally:
            self._scopes.pop()

    def getNameScope(self, name: str = "") -> str:
        """The name that something has in the scopes around."""
        return self._scoped(name)

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Says how many replicas a session will have, for the shapes that collectives give."""
        self._replicas = check.integer(replicationFactor, "replicationFactor", at_least=1)
        self._changed()

    # --- what there is not ----------------------------------------------------------------------

    def customOp(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: a custom operator of the original is compiled for an IPU."""
        raise check.refuse(
            "customOp: there are no compiled operators", "use those of builder.aiOnnx"
        )

    def saveInitializersExternally(self, ids: Iterable[str], filename: str) -> None:
        """Raises: a builder's weights are in its model."""
        raise check.refuse(
            f"saveInitializersExternally({list(ids)}): weights are not written beside the model",
            "use saveModelProto, and onnx.save(..., save_as_external_data=True)",
        )

    # --- inside ---------------------------------------------------------------------------------

    def _go_on(self, source: bytes | str) -> None:
        try:
            model = read(source, typed=False)
        except (FrontendError, FrontendTypeError) as error:
            raise PopARTError(
                f"Failed to load a ModelProto from the string {_shown(source)}: {error.what}. "
                "Check that it is either a valid path to an existing onnx model file, or is a "
                "valid onnx ModelProto string.",
                fix=error.fix,
            ) from error
        self._graph.CopyFrom(model.graph)
        self._outputs = [output.name for output in model.graph.output]
        del self._graph.output[:]
        named = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
        self._opsets |= named
        self._chosen[:] = [self._opsets["ai.onnx"]]
        self._names |= self._own_names()
        self._broadcast |= broadcast_inputs(model)

    def _onnx(self, name: str, version: int) -> Opset:
        if self._chosen and self._chosen[0] != version:
            raise check.refuse(
                f"Invalid opset '{name}' selected. Opset for domain ai.onnx already defined as "
                f"{self._chosen[0]}",
                f"use aiOnnxOpset{self._chosen[0]} everywhere",
            )
        return onnx_opset(self, version)

    def _check(self, operation: Operation, asked: Request) -> None:
        least, most = operation.inputs
        if not least <= len(asked.inputs) <= most:
            raise PopARTError(
                f"{operation.operator} has invalid number of inputs {len(asked.inputs)}. Must be "
                f"between {least} and {most}"
            )
        for name in asked.inputs:
            if name and name not in self._names:
                raise PopARTError(
                    f"Unknown tensor {name!r} (input of {operation.operator})",
                    fix="give names that this builder has given",
                )
        least, most = operation.results
        if operation.outputs is None and not least <= asked.outputs <= most:
            raise PopARTError(
                f"{operation.operator} has an invalid number of outputs {asked.outputs}. Must be "
                f"between {least} and {most}"
            )

    def _model(self) -> onnx.ModelProto:
        versions = {**self._opsets, "ai.onnx": self.aiOnnxOpsetVersion}
        imports = [
            onnx.helper.make_opsetid("" if domain == "ai.onnx" else domain, version)
            for domain, version in versions.items()
        ]
        model = onnx.helper.make_model(self._graph, opset_imports=imports)
        write_broadcast(self._broadcast, model)
        return model

    def _info(self, name: str) -> TensorInfo:
        if name not in self._own_names():
            raise PopARTError(
                f"Tensor {name!r} is not an input or output tensor. Must be one of "
                f"{sorted(self._own_names())}"
            )
        if self._parent is not None:
            raise check.refuse(
                f"the form of {name!r} follows from the graph around it", "ask that one's builder"
            )
        if self._known is None:
            with as_popart_errors():
                told = {} if self._replicas is None else {REPLICAS: self._replicas}
                self._known = converted(self._model(), {}, {}, told)
        known = self._known
        for values in (known.avals, known.variables, known.constants):
            if name in values:
                return TensorInfo(data_type_of(values[name].dtype), values[name].shape)
        raise check.refuse(f"nothing tells the form of {name!r}", "use it in an output")

    def _changed(self) -> None:
        self._known = None

    def _scoped(self, name: str) -> str:
        return "/".join([*self._scopes, name])

    def _unique(self, name: str) -> str:
        name = self._scoped(name)
        number, found = 0, name
        while found in self._names:
            number += 1
            found = f"{name}/{number}"
        self._names.add(found)
        self._changed()
        return found


def _shown(source: object) -> str:
    text = repr(source)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
