"""Sessions: a model on virtual IPUs, run step after step."""

from __future__ import annotations

import copy
from typing import Any

from ipujax.distribution.collectives import sent_by
from ipujax.popart import execution
from ipujax.popart.base_session import Session
from ipujax.popart.checks import check
from ipujax.popart.data_flow import DataFlow
from ipujax.popart.devices import DeviceInfo
from ipujax.popart.inputs import InputShapeInfo
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import SessionOptions
from ipujax.popart.patterns import Patterns
from ipujax.training import TrainState
from ipujax.training.state import on_device


@check.guard
class InferenceSession(Session):
    """Runs a model.

    Args:
      fnModel: the bytes of a model, or its path.
      dataFlow: batches of a step, and what it returns.
      deviceInfo: of a `DeviceManager`.
      inputShapeInfo: shapes of inputs that the model leaves open.
      patterns: `Patterns`; they change nothing.
      userOptions: `SessionOptions`, which are copied; None for the defaults.
      name: the program's.

    Raises:
      PopARTError: (a `ValueError`) a model, anchors, options or a device that cannot be.
    """

    def __init__(
        self,
        fnModel: Any,
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
    """Trains a model: its initializers of floating point that the loss depends on.

    Batch normalization that gives its moving statistics changes them, and dropout acts.

    Args:
      fnModel: the bytes of a model, or its path.
      dataFlow: weight updates of a step, and what it returns.
      loss: a scalar tensor of the model.
      optimizer: an `SGD`, `Adam` or `Adaptive`.
      deviceInfo: of a `DeviceManager`.
      inputShapeInfo: shapes of inputs that the model leaves open.
      patterns: `Patterns`; they change nothing.
      userOptions: `SessionOptions`, which are copied; None for the defaults.
      name: the program's.

    Raises:
      PopARTError: (a `ValueError`) a model, a loss, anchors, options or a device that cannot be.
    """

    def __init__(
        self,
        fnModel: Any,
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "training",
    ):
        kind = check.instance(optimizer, Optimizer, "the optimizer")
        super().__init__(
            fnModel,
            dataFlow,
            deviceInfo,
            inputShapeInfo,
            patterns,
            userOptions,
            name,
            check.text(loss, "the loss"),
            copy.deepcopy(kind),
        )

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Takes new values of hyperparameters that are not constant; nothing is compiled.

        Raises:
          PopARTError: (a `ValueError`) another kind, or constants that change.
        """
        own = check.instance(self._optimizer, Optimizer, "the session's optimizer")
        own.check_replacement(optimizer)
        self._optimizer = copy.deepcopy(optimizer)
        self._state = execution.with_hyper(self._state, optimizer.hyper())

    def getTensorIds(self) -> set[str]:
        """As `getAllTensorIds`."""
        return self.getAllTensorIds()

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Gives all processes the weights, and the optimizer's state, that one has on its device.

        Changes nothing where the session runs in one process.

        Args:
          rootRank: which process.

        Raises:
          PopARTError: (a `ValueError`) there is no such process.
        """
        count, root = self._options.instances, check.integer(rootRank, "rootRank", at_least=0)
        if root >= count:
            raise check.refuse(f"rootRank is {root}, of {count} processes", "they count from 0")
        if count > 1:
            self._check_ready("broadcastWeights")
            now = self._state
            parts = now.variables, now.optimizer_state, now.state
            variables, optimizer_state, state = on_device(sent_by(root, parts))
            self._state = TrainState(variables, optimizer_state, state, now.step)

    def updateEngineCache(self) -> None:
        """Changes nothing: `prepareDevice` sees what other sessions have put into the cache."""

    def connectStreamToCallback(self, streamHandle: str, callback: Any, index: int = 0) -> None:
        """Is refused: there are no streams of Poplar.

        Raises:
          PopARTError: (a `ValueError`) always.
        """
        raise check.refuse(
            f"connectStreamToCallback: there is no stream {streamHandle!r}",
            "give a PyStepIOCallback to session.run",
        )
