"""The part of a session that copies weights between host, device and files."""

from __future__ import annotations

import abc
import os
from pathlib import Path

import onnx
import onnx.numpy_helper

from ipujax.doors.onnx import read_onnx_model
from ipujax.ground import files
from ipujax.popart.host_weights import HostWeights
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import SessionOptions
from ipujax.popart.popart_checks import check, convert_frontend_errors
from ipujax.popart.reports import resolve_file_path
from ipujax.popart.step_io import PyWeightsIO
from ipujax.training import TrainState


class Weights(abc.ABC):
    """A base class of sessions: weights and optimizer slots on host and device, and in files."""

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
        self._state = self._host.build_train_state(self._optimizer)

    def weightsToHost(self) -> None:
        """Copies the weights, and the optimizer's state, from the device to the host."""
        self._check_ready("weightsToHost")
        self._host.copy_from_device(self._state)

    def readWeights(self, weights: PyWeightsIO) -> None:
        """Copies the host's weights, and slots by their names, into arrays.

        Raises:
          PopARTError: (a `ValueError`) unknown names, or arrays of another size.
        """
        self._host.fill_user_arrays(weights)

    def writeWeights(self, weights: PyWeightsIO) -> None:
        """Copies arrays to the host's weights, for the next `weightsFromHost`.

        Raises:
          PopARTError: (a `ValueError`) as `readWeights`; constant weights.
        """
        self._check_not_constant("writeWeights")
        self._host.take_user_arrays(weights)

    def resetHostWeights(
        self,
        modelProtoOrFilename: object,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Replaces the host's weights by those of another model.

        Args:
          modelProtoOrFilename: the bytes of a model, or its path.
          ignoreWeightsInModelWithoutCorrespondingHostWeight: whether it may have others, too.

        Raises:
          PopARTError: (a `ValueError`) weights that the session does not have; constant weights.
        """
        ignores_unknown = check.require_flag(
            ignoreWeightsInModelWithoutCorrespondingHostWeight, "ignore..."
        )
        self._check_not_constant("resetHostWeights")
        with convert_frontend_errors():
            model = read_onnx_model(modelProtoOrFilename)
        tensors = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        host_values = {**self._host.weights, **self._host.slots}
        model_names = {*host_values, *(tensor.name for tensor in self._proto.graph.initializer)}
        if not ignores_unknown and (
            unknown_names := [name for name in tensors if name not in model_names]
        ):
            raise check.value_error(
                f"resetWeights, no tensor '{unknown_names[0]}' in tensors",
                "say ignoreWeightsInModelWithoutCorrespondingHostWeight=True",
            )
        self._host.take_user_arrays(
            PyWeightsIO({n: v for n, v in tensors.items() if n in host_values})
        )

    def modelToHost(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file, with the weights and the optimizer's state of the device."""
        if self._is_ready:
            self._host.copy_from_device(self._state)
        self.saveVariables(path)

    def saveVariables(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file, with the host's weights, for `resetHostWeights`.

        Args:
          path: the file; a folder's is `variables.onnx`.
        """
        with files.replace_file(resolve_file_path(path, "variables.onnx")) as file:
            file.write(self._host.serialize_model(self._proto))

    def saveExecutable(
        self,
        path: str | os.PathLike[str],
        savePopartMetadata: bool = True,
        saveVariables: bool = True,
    ) -> None:
        """Saves the compiled program as `compileAndExport` does, and the host's weights.

        Args:
          path: the file; a folder's is `executable.ipujax`.
          savePopartMetadata: changes nothing: a program has all that `ipu.load_executable` needs.
          saveVariables: whether the host's weights are saved beside it, as `saveVariables` saves
            them: in a folder's `variables.onnx`, else in a file of that name with the ending
            `.onnx`.
        """
        self._check_ready("saveExecutable")
        check.require_flag(savePopartMetadata, "savePopartMetadata")
        self.compileAndExport(path)
        if check.require_flag(saveVariables, "saveVariables"):
            is_folder = Path(path).is_dir()
            self.saveVariables(path if is_folder else Path(path).with_suffix(".onnx"))

    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str) -> None:
        """Raises an error: a session has all tensors in its model.

        Raises:
          PopARTError: (a `ValueError`) always.
        """
        raise check.value_error(
            f"updateExternallySavedTensorLocations: no tensor is at {fromLocation!r}, as a session "
            "writes models whole",
            "leave it out",
        )

    def _check_not_constant(self, method: str) -> None:
        if self._loss is None and self._options.constantWeights:
            raise check.value_error(
                f"Cannot call {method} when constantWeights is set. Set `constantWeights` to False "
                "in the `SessionOption`s when initialising the session to enable this behaviour.",
                "set SessionOptions.constantWeights = False",
            )

    @abc.abstractmethod
    def compileAndExport(self, filename: str | os.PathLike[str]) -> None:
        """Compiles the program and saves it to a file."""

    @abc.abstractmethod
    def _check_ready(self, method: str) -> None:
        """Raises an error if the session is not prepared."""
