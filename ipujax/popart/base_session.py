"""The base class of training sessions and inference sessions."""

from __future__ import annotations

import copy
import dataclasses as dc
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx

from ipujax.doors.graphs import FINAL_SCALE, GRADIENT, UPDATED, build_inference, build_training
from ipujax.doors.onnx import (
    REPLICAS,
    ConvertedGraph,
    convert_graph,
    read_onnx_model,
    updates_of_variables,
)
from ipujax.ground import PyTree, api_boundary, count_replica_groups
from ipujax.host import reset_ipu_seed
from ipujax.popart import step_execution, training_mode
from ipujax.popart.anchored_tensors import ACCUMULATED, DerivedAnchors
from ipujax.popart.data_flow import DataFlow
from ipujax.popart.graph_json import serialize_graph
from ipujax.popart.host_weights import HostWeights, split_off_slots
from ipujax.popart.node_placement import Placed, place_by_options, read_placement
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import (
    IrSerializationFormat,
    ReductionType,
    SessionOptions,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ipujax.popart.patterns import Patterns
from ipujax.popart.planned_nodes import plan_nodes
from ipujax.popart.popart_checks import check, convert_frontend_errors
from ipujax.popart.popart_devices import DeviceInfo, configure_ipus_for_session
from ipujax.popart.popart_forward import Forward, find_differentiable_names
from ipujax.popart.popart_loss_scaling import count_gradients
from ipujax.popart.popart_weights import Weights
from ipujax.popart.reports import Reports
from ipujax.popart.step_inputs import InputShapeInfo, check_input_shapes, read_broadcast_inputs
from ipujax.popart.step_io import PyStepIO, PyStepIOCallback
from ipujax.popart.tensor_info import DataType, TensorInfo, to_data_type
from ipujax.training import DeviceLoop, ReplicaReduction, wrap_with_loss_scaling

Array = np.ndarray


class Session(Reports, Weights):
    """A base class of `TrainingSession` and `InferenceSession`."""

    @api_boundary
    def __init__(
        self,
        fnModel: object,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None,
        patterns: Patterns | None,
        userOptions: SessionOptions | None,
        name: str,
        loss: str | None = None,
        optimizer: Optimizer | None = None,
    ):
        self.dataFlow = copy.deepcopy(check.require_instance(dataFlow, DataFlow, "dataFlow"))
        options = userOptions or SessionOptions()
        self._options = copy.deepcopy(
            check.require_instance(options, SessionOptions, "userOptions")
        )
        self._options.check_supported()
        check.require_instance(patterns, Patterns, "patterns", optional=True)
        check.require_instance(inputShapeInfo, InputShapeInfo, "inputShapeInfo", optional=True)
        self._device = check.require_instance(deviceInfo, DeviceInfo, "deviceInfo")
        self._name = check.require_text(name, "name")
        is_training = loss is not None
        if self._options.enableGradientAccumulation and not is_training:
            raise check.value_error(
                "Gradient Accumulation only available when training",
                "do not set enableGradientAccumulation; use more batches per step",
            )
        if not is_training and not dataFlow.nAnchors():
            raise check.value_error(
                "User must specify an anchor tensor when doing inference.",
                'say DataFlow(1, {tensor: AnchorReturnType("All")})',
            )
        self._loss, self._optimizer = loss, optimizer
        with convert_frontend_errors():
            self._proto, slots = split_off_slots(read_onnx_model(fnModel, check_types=False))
        self._model = self._build_model(inputShapeInfo or InputShapeInfo())
        if is_training:
            step_execution.check_loss_tensor(self._model, loss)
        for anchor in dataFlow.anchors():
            self._check_anchor(anchor, is_training)
        self.accumulationFactor = self._options.accumulation
        self.replicationFactor = self._options.replicas
        self._forward = self._build_forward()
        counting = self._forward.counting
        self._host = HostWeights(
            self._model.variables,
            self._forward.trained,
            self._find_constant_initializers(),
            optimizer,
            slots,
            None if counting is None else counting.factors,
        )
        self._seed = 0
        self._is_ready = False
        self._loop = self._build_device_loop()
        self._state = self._host.build_train_state(optimizer)

    # --- public methods -------------------------------------------------------------------------

    def initAnchorArrays(self) -> dict[str, Array]:
        """Creates an empty array for the values that a step returns of each anchor."""
        arrays: dict[str, Array] = {}
        for name in self.dataFlow.anchors():
            info = self.getInfo(name)
            lead = self.dataFlow.art(name).leading_dimensions_of_result(*self._step_shape)
            arrays[name] = np.empty((*lead, *info.shape()), info.dtype)
        return arrays

    def getInfo(self, id: str) -> TensorInfo:
        """Returns the data type and shape of a tensor, or of a gradient.

        Raises:
          PopARTError: (a `ValueError`) there is no tensor of that name.
        """
        tensor_name = check.require_text(id, "a tensor")
        for prefix in (GRADIENT, ACCUMULATED, UPDATED):
            tensor_name = tensor_name.removeprefix(prefix)
        if tensor_name == FINAL_SCALE and self._loss is not None:
            return TensorInfo(DataType.FLOAT, [])
        for values in (self._model.avals, self._model.variables, self._known_values):
            if tensor_name in values:
                return TensorInfo(
                    to_data_type(values[tensor_name].dtype), values[tensor_name].shape
                )
        raise check.value_error(
            f"there is no tensor {tensor_name!r} in the model",
            "anchor the result of a node, or an input",
        )

    def getAllTensorIds(self) -> set[str]:
        """Returns the names of all tensors of the model."""
        return {*self._model.avals, *self._model.variables, *self._model.constants}

    def setRandomSeed(self, seedValue: int) -> None:
        """Sets the seed of the random numbers of the next step."""
        self._seed = check.require_integer(seedValue, "the seed", at_least=0)

    def getRandomSeed(self) -> int:
        """Returns the seed of the next step's random numbers; each step changes it."""
        return self._seed

    def setRNGState(self, rngValue: Sequence[int]) -> None:
        """Restores the state of random numbers that `getRNGState` returned.

        Raises:
          PopARTError: (a `ValueError`) another number of values.
        """
        values = check.require_sequence(rngValue, "rngValue")
        if len(values) != 1:
            raise check.value_error(
                f"Devicex::setRngStateValue received rngState of size {len(values)}; was expecting "
                "size 1",
                "give what getRNGState() gave",
            )
        self.setRandomSeed(values[0])

    def getRNGState(self) -> list[int]:
        """Returns the state of random numbers and stochastic rounding: the seed."""
        return [self._seed]

    @api_boundary
    def run(self, stepio: PyStepIO | PyStepIOCallback, debugName: str = "") -> None:
        """Runs one step: as many batches as the data flow says.

        Raises:
          PopARTError: (a `ValueError`) a session that is not prepared, or data that do not fit.
        """
        check.require_instance(stepio, PyStepIO | PyStepIOCallback, "stepio", "a PyStepIO")
        check.require_text(debugName, "debugName")
        self._check_ready("run")
        reset_ipu_seed(self._seed)  # for stochastic rounding
        advance = self._loop.run_single_loop(
            self._state,
            self._iterate_micro_batches(self._read_step_inputs(stepio)),
            self._session_loop_steps,
        )
        self._state, self._seed = advance.state, self._seed + 1
        if self._options.syntheticDataMode is SyntheticDataMode.Off:
            self._write_anchors(stepio, advance.results)

    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:
        """Returns the graph that runs as JSON: see `ipujax.popart.graph_json`.

        It is the forward pass after constant folding. The backward pass, and what runs on an IPU,
        come from JAX: see `executable`.
        """
        check.require_instance(format, IrSerializationFormat, "format")
        forward = self._forward
        results = {name for node in forward.graph.nodes for name in node.results}
        avals = {**self._model.avals, **self._model.variables}
        return serialize_graph(self._proto.graph, results, avals, forward.recomputed)

    # --- internals ------------------------------------------------------------------------------

    @property
    def _step_shape(self) -> tuple[int, int, int]:
        return self.dataFlow.batchesPerStep(), self.accumulationFactor, self.replicationFactor

    @property
    def _known_values(self) -> dict[str, PyTree]:
        """The values of tensors that are known before a step runs."""
        numbers = step_execution.compute_optimizer_scalars(
            self._optimizer, self._model, self._loss, self._options
        )
        return {**numbers, **self._model.constants}

    @property
    def _session_loop_steps(self) -> int:
        """The number of steps of the device loop in one step of the session."""
        is_single_step = self._forward.loss is None and self._forward.placement.is_pipelined
        return 1 if is_single_step else self.dataFlow.batchesPerStep()

    def _compile_session(self) -> None:
        inputs = [
            np.zeros((*self._step_shape, *a.shape), a.dtype)
            for a in self._forward.input_avals.values()
        ]
        self._loop.compile(
            self._state, self._iterate_micro_batches(inputs), self._session_loop_steps
        )

    def _check_anchor(self, name: str, is_training: bool) -> None:
        """Checks that an anchor is a tensor, or a gradient that the session computes."""
        info = self.getInfo(name)
        if not name.startswith(GRADIENT):
            return
        if not is_training:
            raise check.value_error(
                f"the anchor {name!r} is a gradient, and an InferenceSession does not train",
                "anchor it in a TrainingSession",
            )
        tensor_name = name.removeprefix(GRADIENT)
        has_gradient = self._loss is not None and tensor_name in find_differentiable_names(
            self._model.graph, self._loss
        )
        if not has_gradient or not jnp.issubdtype(info.dtype, jnp.floating):
            raise check.value_error(
                f"Anchor tensor `{name}' not in Ir Tensors. It is the gradient of a tensor that "
                "the loss does not depend on, that is constant, or that is no floating point",
                "anchor gradients of inputs, weights or results of nodes",
            )

    def _find_constant_initializers(self) -> dict[str, Array]:
        names = {tensor.name for tensor in self._proto.graph.initializer}
        return {n: np.asarray(v) for n, v in self._model.constants.items() if n in names}

    def _build_model(self, infos: InputShapeInfo) -> ConvertedGraph:
        """Builds the model as the session's options change it."""
        options = self._options
        model = _convert_model(self._proto, infos, options.getGlobalReplicationFactor())
        if options.groupNormStridedChannelGrouping:
            model = training_mode.use_strided_groups(model)
        if self._loss is not None:
            model = training_mode.enable_dropout(model)
        avals = {**model.avals, **model.variables}
        graph = place_by_options(model.graph, avals, options, self._ipus_per_replica)
        return dc.replace(model, graph=graph)

    def _build_forward(self) -> Forward:
        options, loss, known_values = self._options, self._loss, self._known_values
        placement = self._read_or_plan_placement()
        config = step_execution.build_session_config(options)
        cache = str(options.cachePath) if options.enableEngineCaching else None
        configure_ipus_for_session(
            self.replicationFactor, placement.ipu_count, self._device, config, cache
        )
        changed_values = updates_of_variables(self._model.graph)
        if loss is not None:
            changed_values |= training_mode.find_moving_statistics(self._model)
        forward = Forward(
            placement=placement,
            loss=loss,
            counting=count_gradients(options, self._optimizer, self._model, placement),
            model=self._model,
            moved=changed_values,
            recomputation=options.autoRecomputation,
        )
        is_mean = step_execution.choose_gradient_reduction(options) == "RUNNING_MEAN"
        self._changing = DerivedAnchors(forward.trained, self.accumulationFactor, is_mean)
        sources = [
            self._changing.source_of_anchor(n)
            for n in self.dataFlow.anchors()
            if n not in known_values
        ]
        gradients = {n.removeprefix(GRADIENT): n for n in sources if n.startswith(GRADIENT)}
        values = dict.fromkeys(n for n in sources if not n.startswith(GRADIENT))
        forward = dc.replace(forward, sent=tuple(values), gradients_of=tuple(gradients))
        if not gradients:
            return forward
        placement = (
            placement.run_stages_in_turn()
        )  # a pipeline sends what its stages give, and no gradients
        counting = count_gradients(options, self._optimizer, self._model, placement)
        return dc.replace(forward, placement=placement, counting=counting)

    def _read_or_plan_placement(self) -> Placed:
        """Reads the placement that the graph's nodes have, or has a plan give them one."""
        options, batches = self._options, self.dataFlow.batchesPerStep()
        factor = self.accumulationFactor if options.enableGradientAccumulation else None
        is_planned = options.enablePipelining and self._model.variables
        if is_planned and options.virtualGraphMode is VirtualGraphMode.Auto:
            count = self.accumulationFactor if self._loss is not None else batches
            anchors = [n for n in self.dataFlow.anchors() if n in self._model.avals]
            self._model, placement = plan_nodes(
                self._model, self._loss, anchors, options, self._ipus_per_replica, count
            )
            return placement
        has_ipus = options.virtualGraphMode is not VirtualGraphMode.Off
        placement = read_placement(self._model.graph, has_ipus, options.enablePipelining)
        placement.check_pipeline_depth(factor, batches, self._loss is not None)
        return placement

    @property
    def _ipus_per_replica(self) -> int:
        return max(1, self._device.numIpus // self._options.replicas)

    def _build_device_loop(self) -> DeviceLoop:
        forward = self._forward
        settings: Any = {
            "name": self._name,
            "replicas": self.replicationFactor,
            "alone": self._options.instances < count_replica_groups(),
        }
        if self._optimizer is None:
            return build_inference(forward, self.dataFlow.batchesPerStep(), **settings)
        optimizer = self._optimizer.build_transformation()
        if forward.counting is not None:
            optimizer = wrap_with_loss_scaling(optimizer, forward.counting.settings)
        kind = self._optimizer.accumulator_type
        means = self._options.accumulationAndReplicationReductionType is ReductionType.Mean
        return build_training(
            forward,
            optimizer,
            {},
            accumulation=self.accumulationFactor,
            reduction_method=step_execution.choose_gradient_reduction(self._options),
            accumulation_dtype=None if kind is DataType.UNDEFINED else kind.value,
            replica_reduction=ReplicaReduction.MEAN if means else ReplicaReduction.SUM,
            **settings,
        )

    def _read_step_inputs(self, stepio: PyStepIO | PyStepIOCallback) -> list[Array]:
        """Reads the inputs of a step, `[batches, accumulation, replicas, ...]`."""
        mode = self._options.syntheticDataMode
        if mode is not SyntheticDataMode.Off:
            shapes = [
                ((*self._step_shape, *aval.shape), aval.dtype)
                for aval in self._forward.input_avals.values()
            ]
            return step_execution.generate_synthetic_data(mode, shapes)
        # The original accepts data for weights, too, and ignores them.
        inputs = {*self._model.inputs, *self._model.variables, *self._find_constant_initializers()}
        stepio.check_array_names(inputs, self.dataFlow.anchors())
        shared_inputs = read_broadcast_inputs(self._proto)
        return [
            self._read_shared_input(stepio, name, aval)
            if name in shared_inputs
            else stepio.read_input(name, self._step_shape, aval)
            for name, aval in self._forward.input_avals.items()
        ]

    def _read_shared_input(
        self, stepio: PyStepIO | PyStepIOCallback, name: str, aval: jax.ShapeDtypeStruct
    ) -> Array:
        """Reads an input that all replicas share, `[batches, accumulation, replicas, ...]`."""
        *lead, _ = self._step_shape
        value = stepio.read_input(name, (*lead, 1), aval)
        return np.broadcast_to(value, (*self._step_shape, *aval.shape))

    def _write_anchors(self, stepio: PyStepIO | PyStepIOCallback, results: Any) -> None:
        known_values, names = self._known_values, self._forward.anchors
        # A pipeline without anchors sends the loss, as it must send something.
        returned_values = dict(zip(names, jax.tree.leaves(results) if names else [], strict=True))
        for name in self.dataFlow.anchors():
            shape = (*self._step_shape, *self.getInfo(name).shape())
            if name in known_values:
                value = np.broadcast_to(known_values[name], shape)
            else:
                values = np.asarray(returned_values[self._changing.source_of_anchor(name)]).reshape(
                    shape
                )
                value = self._changing.compute_anchor(name, values, self._state.variables)
            stepio.write_anchor(name, self.dataFlow.art(name).select_returned_values(value))

    def _iterate_micro_batches(self, inputs: Sequence[Array]) -> Iterator[PyTree]:
        """Iterates over the micro-batches in the order in which the program takes them."""
        count = int(np.prod(self._step_shape))
        keys = step_execution.split_random_keys(self._options, self._seed, count)
        rows = [value.reshape(count, *value.shape[3:]) for value in inputs]
        scaling = 1.0 if self._optimizer is None else self._optimizer.getLossScalingVal()
        return zip(np.full(count, scaling, np.float32), *rows, keys, strict=True)


def _convert_model(proto: onnx.ModelProto, infos: InputShapeInfo, replicas: int) -> ConvertedGraph:
    check_input_shapes(proto, infos)
    names = {info.name for info in proto.graph.input}
    shapes = {n: infos.get(n).shape() for n in infos.getAllTensorIds() if n in names}
    with convert_frontend_errors():
        return convert_graph(proto, shapes, {}, {REPLICAS: replicas})
