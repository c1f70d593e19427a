"""What training sessions and inference sessions share."""

from __future__ import annotations

import copy
import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx

from ipujax.checks.lines import api_boundary
from ipujax.distribution.join import instance_count
from ipujax.doors.graphs import FINAL_SCALE, GRADIENT, UPDATED
from ipujax.frontends.onnx.model import Converted, changes, converted
from ipujax.frontends.onnx.operators.graphcore_collectives import REPLICAS
from ipujax.frontends.onnx.read import read
from ipujax.pipelining_ops import OptimizerFunctionOutput
from ipujax.popart import execution, training_mode
from ipujax.popart.anchors import ACCUMULATED, Changing
from ipujax.popart.checks import as_popart_errors, check
from ipujax.popart.data_flow import DataFlow
from ipujax.popart.devices import DeviceInfo, provide
from ipujax.popart.forward import Forward, followed
from ipujax.popart.host_weights import HostWeights, without_slots
from ipujax.popart.inputs import InputShapeInfo, broadcast_inputs, check_shapes
from ipujax.popart.loss_scaling import count_gradients
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import (
    IrSerializationFormat,
    ReductionType,
    SessionOptions,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ipujax.popart.patterns import Patterns
from ipujax.popart.placed import placed, spread
from ipujax.popart.reports import Reports
from ipujax.popart.serialized import serialized
from ipujax.popart.step_io import PyStepIO, PyStepIOCallback
from ipujax.popart.tensor_info import DataType, TensorInfo, data_type_of
from ipujax.popart.weights import Weights
from ipujax.training import Inference, Training
from ipujax.training.device_loop import DeviceLoop
from ipujax.training.loss_scaling import scaled
from ipujax.training.step import ReplicaReduction
from ipujax.utils import reset_ipu_seed

Array = np.ndarray[Any, Any]


class Session(Reports, Weights):
    """What the kinds of sessions share: see `TrainingSession` and `InferenceSession`."""

    @api_boundary
    def __init__(
        self,
        fnModel: Any,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None,
        patterns: Patterns | None,
        userOptions: SessionOptions | None,
        name: str,
        loss: str | None = None,
        optimizer: Optimizer | None = None,
    ):
        self.dataFlow = copy.deepcopy(check.instance(dataFlow, DataFlow, "dataFlow"))
        options = userOptions or SessionOptions()
        self._options = copy.deepcopy(check.instance(options, SessionOptions, "userOptions"))
        self._options.check()
        check.instance(patterns, Patterns, "patterns", optional=True)
        check.instance(inputShapeInfo, InputShapeInfo, "inputShapeInfo", optional=True)
        self._device = check.instance(deviceInfo, DeviceInfo, "deviceInfo")
        self._name = check.text(name, "name")
        is_training = loss is not None
        if self._options.enableGradientAccumulation and not is_training:
            raise check.refuse(
                "Gradient Accumulation only available when training",
                "leave out enableGradientAccumulation, and say more batches per step",
            )
        if not is_training and not dataFlow.nAnchors():
            raise check.refuse(
                "User must specify an anchor tensor when doing inference.",
                'say DataFlow(1, {tensor: AnchorReturnType("All")})',
            )
        self._loss, self._optimizer = loss, optimizer
        with as_popart_errors():
            self._proto, slots = without_slots(read(fnModel, typed=False))
        self._model = self._made_model(inputShapeInfo or InputShapeInfo())
        if is_training:
            self._check_loss(loss)
        for anchor in dataFlow.anchors():
            self._check_anchor(anchor, is_training)
        self.accumulationFactor = self._options.accumulation
        self.replicationFactor = self._options.replicas
        self._forward = self._made_forward()
        counting = self._forward.counting
        self._host = HostWeights(
            self._model.variables,
            self._forward.trained,
            self._initialized(),
            optimizer,
            slots,
            None if counting is None else counting.factors,
        )
        self._seed = 0
        self._is_ready = False
        self._loop = self._made()
        self._state = self._host.state(optimizer)

    # --- the life of a session ------------------------------------------------------------------

    def initAnchorArrays(self) -> dict[str, Array]:
        """An array for what a step returns of each anchor."""
        arrays: dict[str, Array] = {}
        for name in self.dataFlow.anchors():
            info = self.getInfo(name)
            lead = self.dataFlow.art(name).lead(*self._lead)
            arrays[name] = np.empty((*lead, *info.shape()), info.dtype)
        return arrays

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of a tensor, or of a gradient.

        Raises:
          PopARTError: (a `ValueError`) there is none of that name.
        """
        own = check.text(id, "a tensor")
        for prefix in (GRADIENT, ACCUMULATED, UPDATED):
            own = own.removeprefix(prefix)
        if own == FINAL_SCALE and self._loss is not None:
            return TensorInfo(DataType.FLOAT, [])
        for values in (self._model.avals, self._model.variables, self._known):
            if own in values:
                return TensorInfo(data_type_of(values[own].dtype), values[own].shape)
        raise check.refuse(
            f"there is no tensor {own!r} in the model", "anchor one that a node gives, or an input"
        )

    def getAllTensorIds(self) -> set[str]:
        """The names of all tensors of the model."""
        return {*self._model.avals, *self._model.variables, *self._model.constants}

    def setRandomSeed(self, seedValue: int) -> None:
        """Sets what random numbers follow from."""
        self._seed = check.integer(seedValue, "the seed", at_least=0)

    def getRandomSeed(self) -> int:
        """What the random numbers of the next step follow from; each step changes it."""
        return self._seed

    def setRNGState(self, rngValue: Sequence[int]) -> None:
        """Sets what `getRNGState` gave.

        Raises:
          PopARTError: (a `ValueError`) another number of values.
        """
        values = check.sequence(rngValue, "rngValue")
        if len(values) != 1:
            raise check.refuse(
                f"Devicex::setRngStateValue received rngState of size {len(values)}; was expecting "
                "size 1",
                "give what getRNGState() gave",
            )
        self.setRandomSeed(values[0])

    def getRNGState(self) -> list[int]:
        """All that random numbers, and stochastic rounding, follow from: the seed."""
        return [self._seed]

    @api_boundary
    def run(self, stepio: PyStepIO | PyStepIOCallback, debugName: str = "") -> None:
        """Runs a step: as many batches as the data flow says.

        Raises:
          PopARTError: (a `ValueError`) a session that is not prepared, or data that do not fit.
        """
        check.instance(stepio, PyStepIO | PyStepIOCallback, "stepio", "a PyStepIO")
        check.text(debugName, "debugName")
        self._check_ready("run")
        reset_ipu_seed(self._seed)  # for stochastic rounding
        advance = self._loop.advance(self._state, self._elements(self._read(stepio)), self._steps)
        self._state, self._seed = advance.state, self._seed + 1
        if self._options.syntheticDataMode is SyntheticDataMode.Off:
            self._hand_out(stepio, advance.results)

    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:
        """The graph that runs, as JSON: see `ipujax.popart.serialized`.

        It is the forward pass, after what only constants go into has been computed. What becomes
        of it on an IPU, and the backward pass, are JAX's: see `executable`.
        """
        check.instance(format, IrSerializationFormat, "format")
        forward = self._forward
        results = {name for node in forward.graph.nodes for name in node.results}
        avals = {**self._model.avals, **self._model.variables}
        return serialized(self._proto.graph, results, avals, forward.recomputed)

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _lead(self) -> tuple[int, int, int]:
        return self.dataFlow.batchesPerStep(), self.accumulationFactor, self.replicationFactor

    @property
    def _known(self) -> dict[str, Any]:
        """Values that are known before a step runs."""
        numbers = execution.scalars(self._optimizer, self._model, self._loss, self._options)
        return {**numbers, **self._model.constants}

    @property
    def _steps(self) -> int:
        """Steps of the device loop in a step of the session."""
        is_one = self._forward.loss is None and self._forward.placement.is_pipelined
        return 1 if is_one else self.dataFlow.batchesPerStep()

    def _compile(self) -> None:
        inputs = [np.zeros((*self._lead, *a.shape), a.dtype) for a in self._forward.inputs.values()]
        self._loop.compile(self._state, self._elements(inputs), self._steps)

    def _check_anchor(self, name: str, is_training: bool) -> None:
        """Refuses what is no tensor, and gradients that there are not."""
        info = self.getInfo(name)
        if not name.startswith(GRADIENT):
            return
        if not is_training:
            raise check.refuse(
                f"the anchor {name!r} is a gradient, and this session does not train",
                "anchor it in a TrainingSession",
            )
        own = name.removeprefix(GRADIENT)
        is_open = self._loss is not None and own in followed(self._model.graph, self._loss)
        if not is_open or not jnp.issubdtype(info.dtype, jnp.floating):
            raise check.refuse(
                f"Anchor tensor `{name}' not in Ir Tensors. It is the gradient of a tensor that "
                "the loss does not depend on, that is constant, or that is no floating point",
                "anchor gradients of inputs, weights or results of nodes",
            )

    def _check_loss(self, loss: Any) -> None:
        name = check.text(loss, "the loss")
        if name not in self._model.avals:
            raise check.refuse(
                f"the loss {name!r} is no tensor that the model computes",
                "name the result of a node, such as builder.aiGraphcore.identityloss([x])",
            )
        if (aval := self._model.avals[name]).size != 1:
            raise check.refuse(
                f"the loss {name!r} has shape {aval.shape}, and must be a scalar",
                "reduce it: builder.aiGraphcore.identityloss([x], reduction=ReductionType.Mean)",
            )

    def _initialized(self) -> dict[str, Array]:
        names = {tensor.name for tensor in self._proto.graph.initializer}
        return {n: np.asarray(v) for n, v in self._model.constants.items() if n in names}

    def _made_model(self, infos: InputShapeInfo) -> Converted:
        """The model as it runs in a session of these options."""
        options = self._options
        model = _converted(self._proto, infos, options.getGlobalReplicationFactor())
        if options.groupNormStridedChannelGrouping:
            model = training_mode.with_strided_groups(model)
        if self._loss is not None:
            model = training_mode.with_dropout(model)
        if options.virtualGraphMode is not VirtualGraphMode.Auto:
            return model
        count = max(1, self._device.numIpus // options.replicas)
        graph = spread(model.graph, {**model.avals, **model.variables}, count)
        return dc.replace(model, graph=graph)

    def _made_forward(self) -> Forward:
        options, loss, known = self._options, self._loss, self._known
        has_ipus = options.virtualGraphMode is not VirtualGraphMode.Off
        where = placed(self._model.graph, has_ipus, options.enablePipelining)
        factor = self.accumulationFactor if options.enableGradientAccumulation else None
        where.check_depth(factor, self.dataFlow.batchesPerStep(), loss is not None)
        config = execution.config_of(options)
        cache = str(options.cachePath) if options.enableEngineCaching else None
        provide(self.replicationFactor, where.ipu_count, self._device, config, cache)
        moved = changes(self._model.graph)
        if loss is not None:
            moved |= training_mode.moved_statistics(self._model)
        forward = Forward(
            placement=where,
            loss=loss,
            counting=count_gradients(options, self._optimizer, self._model, where),
            model=self._model,
            moved=moved,
            recomputation=options.autoRecomputation,
        )
        is_mean = execution.reduction_of(options) == "RUNNING_MEAN"
        self._changing = Changing(forward.trained, self.accumulationFactor, is_mean)
        sources = [self._changing.source(n) for n in self.dataFlow.anchors() if n not in known]
        gradients = {n.removeprefix(GRADIENT): n for n in sources if n.startswith(GRADIENT)}
        values = dict.fromkeys(n for n in sources if not n.startswith(GRADIENT))
        forward = dc.replace(forward, sent=tuple(values), gradients_of=tuple(gradients))
        if not gradients:
            return forward
        where = where.in_turn()  # a pipeline sends what its stages give, and no gradients
        counting = count_gradients(options, self._optimizer, self._model, where)
        return dc.replace(forward, placement=where, counting=counting)

    def _made(self) -> DeviceLoop:
        forward = self._forward
        common: Any = {
            "name": self._name,
            "replicas": self.replicationFactor,
            "alone": self._options.instances < instance_count(),
        }
        is_pipelined = forward.placement.is_pipelined
        if self._optimizer is None:
            if not is_pipelined:
                return Inference(forward, **common)
            count = self.dataFlow.batchesPerStep()
            return Inference(forward.pipeline(), accumulation=count, **common)
        optimizer = self._optimizer.transformation()
        if forward.counting is not None:
            optimizer = scaled(optimizer, forward.counting.settings)
        kind = self._optimizer.accumulator_type
        means = self._options.accumulationAndReplicationReductionType is ReductionType.Mean
        return Training(
            forward.pipeline() if is_pipelined else forward.differentiable,
            (lambda loss, *_: OptimizerFunctionOutput(optimizer, loss))
            if is_pipelined
            else optimizer,
            accumulation=self.accumulationFactor,
            reduction_method=execution.reduction_of(self._options),
            accumulation_dtype=None if kind is DataType.UNDEFINED else kind.value,
            replica_reduction=ReplicaReduction.MEAN if means else ReplicaReduction.SUM,
            **common,
        )

    def _read(self, stepio: PyStepIO | PyStepIOCallback) -> list[Array]:
        """The inputs of a step, `[batches, accumulation, replicas, ...]`."""
        mode = self._options.syntheticDataMode
        if mode is not SyntheticDataMode.Off:
            shapes = [
                ((*self._lead, *aval.shape), aval.dtype) for aval in self._forward.inputs.values()
            ]
            return execution.synthetic(mode, shapes)
        # Weights are inputs of the original's models, too: data of theirs are not looked at.
        inputs = {*self._model.inputs, *self._model.variables, *self._initialized()}
        stepio.check_names(inputs, self.dataFlow.anchors())
        shared = broadcast_inputs(self._proto)
        return [
            self._read_shared(stepio, name, aval)
            if name in shared
            else stepio.read(name, self._lead, aval)
            for name, aval in self._forward.inputs.items()
        ]

    def _read_shared(
        self, stepio: PyStepIO | PyStepIOCallback, name: str, aval: jax.ShapeDtypeStruct
    ) -> Array:
        """An input of which all replicas get the same, `[batches, accumulation, replicas, ...]`."""
        *lead, _ = self._lead
        value = stepio.read(name, (*lead, 1), aval)
        return np.broadcast_to(value, (*self._lead, *aval.shape))

    def _hand_out(self, stepio: PyStepIO | PyStepIOCallback, results: Any) -> None:
        known, names = self._known, self._forward.anchors
        # A pipeline without anchors sends the loss, as it must send something.
        sent = dict(zip(names, jax.tree.leaves(results) if names else [], strict=True))
        for name in self.dataFlow.anchors():
            shape = (*self._lead, *self.getInfo(name).shape())
            if name in known:
                value = np.broadcast_to(known[name], shape)
            else:
                values = np.asarray(sent[self._changing.source(name)]).reshape(shape)
                value = self._changing.value(name, values, self._state.variables)
            stepio.write(name, self.dataFlow.art(name).reduced(value))

    def _elements(self, inputs: Sequence[Array]) -> Any:
        """The micro-batches, in the order in which the program takes them."""
        count = int(np.prod(self._lead))
        keys = self._keys(count)
        rows = [value.reshape(count, *value.shape[3:]) for value in inputs]
        scaling = 1.0 if self._optimizer is None else self._optimizer.getLossScalingVal()
        return zip(np.full(count, scaling, np.float32), *rows, keys, strict=True)

    def _keys(self, count: int) -> Array:
        """The keys of this process's micro-batches, of those of all: `uint32[count, 2]`."""
        instances, offset = self._options.instances, self._options.globalReplicaOffset
        every = jax.random.split(jax.random.key(self._seed), count * instances)
        data = np.asarray(jax.random.key_data(every))
        rows = data.reshape(-1, self.replicationFactor * instances, data.shape[-1])
        own = rows[:, offset : offset + self.replicationFactor]
        return own.reshape(count, data.shape[-1])


def _converted(proto: onnx.ModelProto, infos: InputShapeInfo, replicas: int) -> Converted:
    check_shapes(proto, infos)
    names = {info.name for info in proto.graph.input}
    shapes = {n: infos.get(n).shape() for n in infos.getAllTensorIds() if n in names}
    with as_popart_errors():
        return converted(proto, shapes, {}, {REPLICAS: replicas})
