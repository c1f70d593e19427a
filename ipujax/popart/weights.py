"""The weights of a session: between its host and its device, and in files."""

from __future__ import annotations

import abc
import os
from pathlib import Path
from typing import Any

import onnx
import onnx.numpy_helper

from ipujax.frontends.onnx.read import read
from ipujax.host import files
from ipujax.popart.checks import as_popart_errors, check
from ipujax.popart.host_weights import HostWeights
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import SessionOptions
from ipujax.popart.reports import placed_in
from ipujax.popart.step_io import PyWeightsIO
from ipujax.training import TrainState


class Weights(abc.ABC):
    """The part of a session that is about its weights, and the slots of its optimizer."""

    _proto: onnx.ModelProto
    _host: HostWeights
    _state: TrainState
    _loss: str | None
    _optimizer: Optimizer | None
    _options: SessionOptions
    _is_ready: bool

    def weightsFromHost(self) -> None:
        """Copies the weights, and the optimizer's state, from the host to the device."""
        self._check_ready("weightsFromHost")
        self._state = self._host.state(self._optimizer)

    def weightsToHost(self) -> None:
        """Copies the weights, and the optimizer's state, from the device to the host."""
        self._check_ready("weightsToHost")
        self._host.update(self._state)

    def readWeights(self, weights: PyWeightsIO) -> None:
        """Fills arrays with what the host has of the weights; slots are there by their names.

        Raises:
          PopARTError: (a `ValueError`) names that there are not, or arrays of another size.
        """
        self._host.read(weights)

    def writeWeights(self, weights: PyWeightsIO) -> None:
        """Takes arrays as the host's weights, for the next `weightsFromHost`.

        Raises:
          PopARTError: (a `ValueError`) as `readWeights`; constant weights.
        """
        self._check_variable("writeWeights")
        self._host.write(weights)

    def resetHostWeights(
        self,
        modelProtoOrFilename: Any,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Takes the weights of another model as the host's.

        Args:
          modelProtoOrFilename: the bytes of a model, or its path.
          ignoreWeightsInModelWithoutCorrespondingHostWeight: whether it may have others, too.

        Raises:
          PopARTError: (a `ValueError`) weights that the session does not have; constant weights.
        """
        ignored = check.flag(ignoreWeightsInModelWithoutCorrespondingHostWeight, "ignore...")
        self._check_variable("resetHostWeights")
        with as_popart_errors():
            model = read(modelProtoOrFilename)
        tensors = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        known = {**self._host.weights, **self._host.slots}
        own = {*known, *(tensor.name for tensor in self._proto.graph.initializer)}
        if not ignored and (other := [name for name in tensors if name not in own]):
            raise check.refuse(
                f"resetWeights, no tensor '{other[0]}' in tensors",
                "say ignoreWeightsInModelWithoutCorrespondingHostWeight=True",
            )
        self._host.write(PyWeightsIO({n: v for n, v in tensors.items() if n in known}))

    def modelToHost(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file, with the weights and the optimizer's state of the device."""
        if self._is_ready:
            self._host.update(self._state)
        self.saveVariables(path)

    def saveVariables(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file, with the weights that the host has, for `resetHostWeights`.

        Args:
          path: the file; a folder's is `variables.onnx`.
        """
        with files.replacing(placed_in(path, "variables.onnx")) as file:
            file.write(self._host.write_model(self._proto))

    def saveExecutable(
        self,
        path: str | os.PathLike[str],
        savePopartMetadata: bool = True,
        saveVariables: bool = True,
    ) -> None:
        """Writes the compiled program as `compileAndExport` does; errors as there.

        Args:
          path: the file; a folder's is `executable.ipujax`.
          savePopartMetadata: changes nothing: a program has all that `ipu.load_executable` needs.
          saveVariables: whether the host's weights are saved beside it, as `saveVariables` saves
            them: in a folder's `variables.onnx`, else in a file of that name with the ending
            `.onnx`.
        """
        self._check_ready("saveExecutable")
        check.flag(savePopartMetadata, "savePopartMetadata")
        self.compileAndExport(path)
        if check.flag(saveVariables, "saveVariables"):
            is_folder = Path(path).is_dir()
            self.saveVariables(path if is_folder else Path(path).with_suffix(".onnx"))

    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str) -> None:
        """Is refused: a session takes all tensors into its model.

        Raises:
          PopARTError: (a `ValueError`) always.
        """
        raise check.refuse(
            f"updateExternallySavedTensorLocations: no tensor is at {fromLocation!r}, as a session "
            "writes models whole",
            "leave it out",
        )

    def _check_variable(self, what: str) -> None:
        if self._loss is None and self._options.constantWeights:
            raise check.refuse(
                f"Cannot call {what} when constantWeights is set. Set `constantWeights` to False "
                "in the `SessionOption`s when initialising the session to enable this behaviour.",
                "set SessionOptions.constantWeights = False",
            )

    @abc.abstractmethod
    def compileAndExport(self, filename: str | os.PathLike[str]) -> None:
        """Writes the compiled program to a file."""

    @abc.abstractmethod
    def _check_ready(self, what: str) -> None:
        """Refuses what a session can only do once it is prepared."""
