"""Sessions: a model on virtual IPUs, run step after step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import onnx
import onnx.numpy_helper

from ipujax.driver.stages import Executable
from ipujax.frontends.onnx.model import converted
from ipujax.frontends.onnx.read import read
from ipujax.host import files
from ipujax.pipelining_ops import OptimizerFunctionOutput
from ipujax.popart.checks import check
from ipujax.popart.data_flow import DataFlow
from ipujax.popart.devices import DeviceInfo, provide
from ipujax.popart.forward import GRADIENT, Forward
from ipujax.popart.options import ReductionType, SessionOptions, VirtualGraphMode
from ipujax.popart.placed import placed
from ipujax.popart.step_io import PyStepIO, PyStepIOCallback, PyWeightsIO
from ipujax.popart.tensor_info import TensorInfo, data_type_of
from ipujax.training import Inference, Training, TrainState
from ipujax.training.device_loop import DeviceLoop
from ipujax.training.state import on_device
from ipujax.training.step import ReplicaReduction

Array = np.ndarray[Any, Any]


class Session:
    """What the kinds of sessions share: see `TrainingSession` and `InferenceSession`."""

    def __init__(
        self,
        fnModel: Any,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        userOptions: SessionOptions | None,
        name: str,
        loss: str | None = None,
        optimizer: Any = None,
    ):
        self._proto = read(fnModel)
        self._model = converted(self._proto, {}, {})
        self.dataFlow = check.instance(dataFlow, DataFlow, "dataFlow")
        self._options = check.instance(
            userOptions or SessionOptions(), SessionOptions, "userOptions"
        )
        self._options.check()
        self.accumulationFactor = self._options.accumulation if loss is not None else 1
        self.replicationFactor = self._options.replicas
        is_manual = self._options.virtualGraphMode is VirtualGraphMode.Manual
        where = placed(self._model.graph, is_manual, self._options.enablePipelining)
        device = check.instance(deviceInfo, DeviceInfo, "deviceInfo")
        provide(self.replicationFactor, where.count, device)
        self._forward = Forward(self._model, where, tuple(dataFlow.anchors()), loss)
        self._optimizer = optimizer
        self._seed = 0
        self._host = {n: np.array(v) for n, v in self._model.variables.items()}
        self._loop = self._made(name)
        self._state = self._fresh()

    # --- the life of a session ------------------------------------------------------------------

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compiles the program."""
        check.flag(loadEngine, "loadEngine")
        lead = self._lead
        inputs = [np.zeros((*lead, *a.shape), a.dtype) for a in self._model.inputs.values()]
        self._loop.compile(self._state, self._elements(inputs), self._steps)

    def weightsFromHost(self) -> None:
        """Copies the weights that the session has on the host to the device."""
        self._state = self._fresh()

    def weightsToHost(self) -> None:
        """Copies the weights on the device to the host."""
        values = {**self._state.variables, **self._state.state}
        self._host = {name: np.array(values[name]) for name in self._host}

    def readWeights(self, weights: PyWeightsIO) -> None:
        """Gives what the host has of the weights."""
        for name, into in weights.weights.items():
            into[...] = self._host[name]

    def modelToHost(self, path: str) -> None:
        """Writes the model, with the weights that the host has, to a file."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        for tensor in proto.graph.initializer:
            if tensor.name in self._host:
                value = self._host[tensor.name]
                tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
        with files.replacing(path) as file:
            file.write(proto.SerializeToString())

    def initAnchorArrays(self) -> dict[str, Array]:
        """An array for what a step returns of each anchor."""
        arrays: dict[str, Array] = {}
        for name in self.dataFlow.anchors():
            info = self.getInfo(name)
            lead = self.dataFlow.art(name).lead(*self._lead)
            arrays[name] = np.empty((*lead, *info.shape()), info.dtype)
        return arrays

    def getInfo(self, name: str) -> TensorInfo:
        """Type and shape of a tensor, or of a gradient."""
        own = name.removeprefix(GRADIENT)
        for values in (self._model.avals, self._model.constants):
            if own in values:
                return TensorInfo(data_type_of(values[own].dtype), values[own].shape)
        raise check.refuse(
            f"there is no tensor {own!r} in the model", "anchor one that a node gives, or an input"
        )

    def setRandomSeed(self, seed: int) -> None:
        """Sets what random numbers follow from."""
        self._seed = check.integer(seed, "the seed")

    def run(self, stepio: PyStepIO | PyStepIOCallback, debugName: str = "") -> None:
        """Runs a step: as many batches as the data flow says."""
        check.text(debugName, "debugName")
        lead = self._lead
        inputs = [
            stepio.read(name, lead, aval.shape).astype(aval.dtype)
            for name, aval in self._model.inputs.items()
        ]
        advance = self._loop.advance(self._state, self._elements(inputs), self._steps)
        self._state = advance.state
        results = dict(zip(self._forward.sent, jax.tree.leaves(advance.results), strict=True))
        for name in self.dataFlow.anchors():
            shape = (*lead, *self.getInfo(name).shape())
            if name in results:
                value = np.asarray(results[name]).reshape(shape)
            else:
                value = np.broadcast_to(self._model.constants[name], shape)
            stepio.write(name, self.dataFlow.art(name).reduced(value))

    @property
    def executable(self) -> Executable | None:
        """The compiled program; None before `prepareDevice`."""
        return self._loop.executable

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _batches(self) -> int:
        return self.dataFlow.batchesPerStep()

    @property
    def _lead(self) -> tuple[int, int, int]:
        return self._batches, self.accumulationFactor, self.replicationFactor

    def _made(self, name: str) -> DeviceLoop:
        forward, replicas = self._forward, self.replicationFactor
        is_pipelined = forward.placed.is_pipelined
        if forward.loss is None:
            if not is_pipelined:
                return Inference(forward, name=name, replicas=replicas)
            count = self._batches
            return Inference(forward.pipeline(), accumulation=count, name=name, replicas=replicas)
        optimizer = self._optimizer.transformation()
        means = self._options.accumulationAndReplicationReductionType is ReductionType.Mean
        return Training(
            forward.pipeline() if is_pipelined else forward.differentiable,
            (lambda loss, *_: OptimizerFunctionOutput(optimizer, loss))
            if is_pipelined
            else optimizer,
            accumulation=self.accumulationFactor,
            reduction_method="MEAN" if means else "SUM",
            replica_reduction=ReplicaReduction.MEAN if means else ReplicaReduction.SUM,
            name=name,
            replicas=replicas,
        )

    @property
    def _steps(self) -> int:
        """Steps of the device loop in a step of the session."""
        is_one = self._forward.loss is None and self._forward.placed.is_pipelined
        return 1 if is_one else self._batches

    def _fresh(self) -> TrainState:
        trained = {name: self._host[name] for name in self._forward.trained}
        rest = {name: value for name, value in self._host.items() if name not in trained}
        slots = None if self._optimizer is None else self._optimizer.transformation().init(trained)
        return TrainState(*on_device((trained, slots, rest)))

    def _elements(self, inputs: Sequence[Array]) -> Any:
        """The micro-batches, in the order in which the program takes them."""
        count = int(np.prod(self._lead))
        keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(self._seed), count)))
        rows = [value.reshape(count, *value.shape[3:]) for value in inputs]
        scale = np.ones(count, np.float32)
        return zip(scale, *rows, keys, strict=True)


class InferenceSession(Session):
    """Runs a model.

    Args:
      fnModel: the bytes of a model, or its path.
      dataFlow: batches of a step, and what it returns.
      deviceInfo: of a `DeviceManager`.
      userOptions: `SessionOptions`; None for the defaults.
      name: the program's.

    Raises:
      PopARTError: (a `ValueError`) anchors, options or a device that cannot be.
      FrontendError: (a `ValueError`) a model that cannot be converted.
    """

    def __init__(
        self,
        fnModel: Any,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
    ):
        super().__init__(fnModel, dataFlow, deviceInfo, userOptions, name)


class TrainingSession(Session):
    """Trains a model: its initializers of floating point that the loss depends on.

    Args:
      fnModel: the bytes of a model, or its path.
      dataFlow: weight updates of a step, and what it returns.
      loss: a scalar tensor of the model.
      optimizer: an `SGD` or another one of this package.
      deviceInfo: of a `DeviceManager`.
      userOptions: `SessionOptions`; None for the defaults.
      name: the program's.

    Raises:
      PopARTError: (a `ValueError`) a loss, anchors, options or a device that cannot be.
      FrontendError: (a `ValueError`) a model that cannot be converted.
    """

    def __init__(
        self,
        fnModel: Any,
        dataFlow: DataFlow,
        loss: str,
        optimizer: Any,
        deviceInfo: DeviceInfo,
        userOptions: SessionOptions | None = None,
        name: str = "training",
    ):
        super().__init__(fnModel, dataFlow, deviceInfo, userOptions, name, loss, optimizer)
