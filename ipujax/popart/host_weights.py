"""The weights of a session on the host, and the slots of its optimizer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from ipujax.popart.checks import check
from ipujax.popart.initializers import initializer, replace
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.optimizers.optimizer import PREFIXES
from ipujax.popart.step_io import PyWeightsIO
from ipujax.training import TrainState
from ipujax.training.loss_scaling import FACTOR, Factors, Scale
from ipujax.training.state import on_device

Array = np.ndarray[Any, Any]


COUNTER = "Histogram_counter"
"""Of weight updates since the factor of automatic loss scaling was due, less one."""


def _is_slot(name: str, weights: Collection[str]) -> bool:
    if name in (FACTOR, COUNTER):
        return True
    return any(name.startswith(p) and name.removeprefix(p) in weights for p in PREFIXES)


def without_slots(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model without the slots of an optimizer that `modelToHost` wrote, and those slots."""
    names = {tensor.name for tensor in proto.graph.initializer}
    used = {name for node in proto.graph.node for name in node.input}
    slots = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in proto.graph.initializer
        if tensor.name not in used and _is_slot(tensor.name, names)
    }
    if not slots:
        return proto, {}
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    kept = [tensor for tensor in plain.graph.initializer if tensor.name not in slots]
    del plain.graph.initializer[:]
    plain.graph.initializer.extend(kept)
    return plain, slots


class HostWeights:
    """Weights, and slots by PopART's names, such as `Accl1___w` or `lossScaleUpdateFactor`.

    Args:
      weights: the variables of the model.
      trained: the names of those that are trained.
      constants: initializers that are no variables, such as those of integers.
      optimizer: None in inference.
      slots: of a model that was saved; those that the optimizer does not have are left out.
      factors: of automatic loss scaling; None without it.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        trained: Sequence[str],
        constants: Mapping[str, Array],
        optimizer: Optimizer | None,
        slots: Mapping[str, Array],
        factors: Factors | None = None,
    ):
        self.weights = {name: np.array(value) for name, value in weights.items()}
        self._trained, self._constants = tuple(trained), dict(constants)
        self._factors = factors
        begun: dict[str, Any] = {}
        if optimizer is not None:
            state: Any = optimizer.transformation().init(self._of_trained())
            begun |= state["slots"]
        self._own_slots = tuple(begun)
        if factors is not None:
            begun[FACTOR] = np.ones((), np.float32)
            if factors.settings.period > 1:
                begun[COUNTER] = np.full((), -1, np.int32)
        self.slots = {n: slots[n] if n in slots else np.array(v) for n, v in begun.items()}

    def state(self, optimizer: Optimizer | None) -> TrainState:
        """What training goes on from."""
        rest = {name: v for name, v in self.weights.items() if name not in self._trained}
        trained = self._of_trained()
        if optimizer is None:
            return TrainState(*on_device((trained, None, rest)))
        slots = {name: self.slots[name] for name in self._own_slots}
        kept: dict[str, Any] = {"hyper": optimizer.hyper(), "slots": slots}
        if self._factors is not None:
            updates = np.int32(self.slots.get(COUNTER, -1) + 1)
            kept["scale"] = scale = Scale(self.slots[FACTOR], updates)  # pyright: ignore
            trained |= dict.fromkeys(self._factors.names, scale.factor)
        return TrainState(*on_device((trained, kept, rest)))

    def update(self, state: TrainState) -> None:
        """Takes what is on the device."""
        values = {**state.variables, **state.state}
        self.weights = {name: np.array(values[name]) for name in self.weights}
        if state.optimizer_state is None:
            return
        self.slots |= {n: np.array(v) for n, v in state.optimizer_state["slots"].items()}
        if self._factors is not None:
            scale: Scale = state.optimizer_state["scale"]
            self.slots[FACTOR] = np.array(scale.factor)
            if COUNTER in self.slots:
                period = self._factors.settings.period
                self.slots[COUNTER] = np.array((scale.updates - 1) % period, np.int32)

    def read(self, into: PyWeightsIO) -> None:
        """Fills a user's arrays.

        Raises:
          PopARTError: (a `ValueError`) names that there are not, or arrays of another size.
        """
        everything = {**self._constants, **self.weights, **self.slots}
        for name, array in check.instance(into, PyWeightsIO, "the weights").weights.items():
            array[...] = self._fitting(everything, name, array).reshape(array.shape)

    def write(self, given: PyWeightsIO) -> None:
        """Takes a user's arrays; errors as `read`."""
        found: list[tuple[dict[str, Array], str, Array]] = []
        for name, array in check.instance(given, PyWeightsIO, "the weights").weights.items():
            into = self.weights if name in self.weights else self.slots
            old = self._fitting({**self.weights, **self.slots}, name, np.asarray(array))
            found.append((into, name, np.asarray(array, old.dtype).reshape(old.shape)))
        for into, name, array in found:
            into[name] = array.copy()

    def write_model(self, proto: onnx.ModelProto) -> bytes:
        """A model with these weights and slots."""
        model = onnx.ModelProto()
        model.CopyFrom(proto)
        for tensor in model.graph.initializer:
            if tensor.name in self.weights:
                replace(tensor, self.weights[tensor.name])
        slots = [initializer(name, value) for name, value in self.slots.items()]
        model.graph.initializer.extend(slots)
        return model.SerializeToString()

    def _of_trained(self) -> dict[str, Array]:
        return {name: self.weights[name] for name in self._trained}

    def _fitting(self, known: Mapping[str, Array], name: str, array: Array) -> Array:
        if name not in known:
            raise check.refuse(f"there is no weight {name!r}", f"the weights are {sorted(known)}")
        if known[name].size != array.size:
            raise check.refuse(
                f"weight {name!r} has shape {known[name].shape}, and the array {array.shape}",
                "give an array of the weight's shape",
            )
        return known[name]
