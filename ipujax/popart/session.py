"""The sessions of PopART: a model on virtual IPUs, run step after step."""

from __future__ import annotations

import copy

from ipujax.doors.graphs import broadcast_train_state
from ipujax.popart import step_execution
from ipujax.popart.base_session import Session
from ipujax.popart.data_flow import DataFlow
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import SessionOptions
from ipujax.popart.patterns import Patterns
from ipujax.popart.popart_checks import check
from ipujax.popart.popart_devices import DeviceInfo
from ipujax.popart.step_inputs import InputShapeInfo


@check.guard
class InferenceSession(Session):
    """A session that runs a model.

    Args:
      fnModel: the bytes of a model, or its path.
      dataFlow: the batches of a step, and the anchors that it returns.
      deviceInfo: a device of a `DeviceManager`.
      inputShapeInfo: shapes of inputs that the model leaves open.
      patterns: `Patterns`; they change nothing.
      userOptions: `SessionOptions`, which are copied; None for the defaults.
      name: the program's.

    Raises:
      PopARTError: (a `ValueError`) a model, anchors, options or a device that cannot be.
    """

    def __init__(
        self,
        fnModel: object,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
    ):
        super().__init__(fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name)


@check.guard
class TrainingSession(Session):
    """A session that trains a model: its floating-point initializers that the loss depends on.

    Batch normalization that gives its moving statistics changes them, and dropout acts.

    Args:
      fnModel: the bytes of a model, or its path.
      dataFlow: the weight updates of a step, and the anchors that it returns.
      loss: a scalar tensor of the model.
      optimizer: an `SGD`, `Adam` or `Adaptive`.
      deviceInfo: a device of a `DeviceManager`.
      inputShapeInfo: shapes of inputs that the model leaves open.
      patterns: `Patterns`; they change nothing.
      userOptions: `SessionOptions`, which are copied; None for the defaults.
      name: the program's.

    Raises:
      PopARTError: (a `ValueError`) a model, a loss, anchors, options or a device that cannot be.
    """

    def __init__(
        self,
        fnModel: object,
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "training",
    ):
        kind = check.require_instance(optimizer, Optimizer, "the optimizer")
        super().__init__(
            fnModel,
            dataFlow,
            deviceInfo,
            inputShapeInfo,
            patterns,
            userOptions,
            name,
            check.require_text(loss, "the loss"),
            copy.deepcopy(kind),
        )

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Sets new values of hyperparameters that are not constant, without compilation.

        Raises:
          PopARTError: (a `ValueError`) another kind, or constants that change.
        """
        current_optimizer = check.require_instance(
            self._optimizer, Optimizer, "the session's optimizer"
        )
        current_optimizer.check_replacement(optimizer)
        self._optimizer = copy.deepcopy(optimizer)
        self._state = step_execution.replace_session_hyperparameters(
            self._state, optimizer.collect_variable_values()
        )

    def getTensorIds(self) -> set[str]:
        """Returns the names of all tensors of the model, as `getAllTensorIds`."""
        return self.getAllTensorIds()

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Copies weights and optimizer state from one process's device to all processes.

        Changes nothing where the session runs in one process.

        Args:
          rootRank: the index of the process.

        Raises:
          PopARTError: (a `ValueError`) there is no such process.
        """
        count, root = (
            self._options.instances,
            check.require_integer(rootRank, "rootRank", at_least=0),
        )
        if root >= count:
            raise check.value_error(
                f"rootRank is {root}, of {count} processes", "they count from 0"
            )
        if count > 1:
            self._check_ready("broadcastWeights")
            self._state = broadcast_train_state(self._state, root)

    def updateEngineCache(self) -> None:
        """Changes nothing: `prepareDevice` sees entries that other sessions add to the cache."""

    def connectStreamToCallback(self, streamHandle: str, callback: object, index: int = 0) -> None:
        """Raises an error: there are no Poplar streams.

        Raises:
          PopARTError: (a `ValueError`) always.
        """
        raise check.value_error(
            f"connectStreamToCallback: there is no stream {streamHandle!r}",
            "give a PyStepIOCallback to session.run",
        )
