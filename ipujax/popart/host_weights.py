"""The weights of a session on the host, and the slots of its optimizer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from ipujax.popart.initializers import make_initializer, replace_initializer_value
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.optimizers.optimizer import PREFIXES
from ipujax.popart.popart_checks import check
from ipujax.popart.step_io import PyWeightsIO
from ipujax.training import FACTOR, Factors, Scale, TrainState, drop_weak_types

Array = np.ndarray


COUNTER = "Histogram_counter"
"""The name of the count of weight updates since the loss scaling was adapted, minus one."""


def _is_optimizer_slot(name: str, weights: Collection[str]) -> bool:
    if name in (FACTOR, COUNTER):
        return True
    return any(name.startswith(p) and name.removeprefix(p) in weights for p in PREFIXES)


def split_off_slots(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Splits a model that `modelToHost` wrote into the model and its optimizer's slots."""
    names = {tensor.name for tensor in proto.graph.initializer}
    used = {name for node in proto.graph.node for name in node.input}
    slots = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in proto.graph.initializer
        if tensor.name not in used and _is_optimizer_slot(tensor.name, names)
    }
    if not slots:
        return proto, {}
    model_without_slots = onnx.ModelProto()
    model_without_slots.CopyFrom(proto)
    weight_tensors = [
        tensor for tensor in model_without_slots.graph.initializer if tensor.name not in slots
    ]
    del model_without_slots.graph.initializer[:]
    model_without_slots.graph.initializer.extend(weight_tensors)
    return model_without_slots, slots


class HostWeights:
    """The weights and slots on the host; slots have PopART's names, such as `Accl1___w`.

    Args:
      weights: the variables of the model.
      trained: the names of the trained variables.
      constants: initializers that are no variables, such as integers.
      optimizer: the optimizer; None in inference.
      slots: the slots of a saved model; slots that the optimizer does not have are dropped.
      factors: the factors of automatic loss scaling; None without it.
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
        initial_slots: dict[str, Any] = {}
        if optimizer is not None:
            state: Any = optimizer.build_transformation().init(self._select_trained_weights())
            initial_slots |= state["slots"]
        self._own_slots = tuple(initial_slots)
        if factors is not None:
            initial_slots[FACTOR] = np.ones((), np.float32)
            if factors.settings.period > 1:
                initial_slots[COUNTER] = np.full((), -1, np.int32)
        self.slots = {n: slots[n] if n in slots else np.array(v) for n, v in initial_slots.items()}

    def build_train_state(self, optimizer: Optimizer | None) -> TrainState:
        """Builds the state that training starts from, on the device."""
        untrained = {name: v for name, v in self.weights.items() if name not in self._trained}
        trained = self._select_trained_weights()
        if optimizer is None:
            return TrainState(*drop_weak_types((trained, None, untrained)))
        slots = {name: self.slots[name] for name in self._own_slots}
        optimizer_state: dict[str, object] = {
            "hyper": optimizer.collect_variable_values(),
            "slots": slots,
        }
        if self._factors is not None:
            updates = np.int32(self.slots.get(COUNTER, -1) + 1)
            optimizer_state["scale"] = scale = Scale(self.slots[FACTOR], updates)  # pyright: ignore
            trained |= dict.fromkeys(self._factors.factor_names, scale.factor)
        return TrainState(*drop_weak_types((trained, optimizer_state, untrained)))

    def copy_from_device(self, state: TrainState) -> None:
        """Copies the weights and slots from the device."""
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

    def fill_user_arrays(self, user_arrays: PyWeightsIO) -> None:
        """Copies weights and slots into a user's arrays.

        Raises:
          PopARTError: (a `ValueError`) unknown names, or arrays of another size.
        """
        everything = {**self._constants, **self.weights, **self.slots}
        for name, array in check.require_instance(
            user_arrays, PyWeightsIO, "the weights"
        ).weights.items():
            array[...] = self._check_array_size(everything, name, array).reshape(array.shape)

    def take_user_arrays(self, user_arrays: PyWeightsIO) -> None:
        """Copies a user's arrays to weights and slots; raises errors as `fill_user_arrays`."""
        updates: list[tuple[dict[str, Array], str, Array]] = []
        for name, array in check.require_instance(
            user_arrays, PyWeightsIO, "the weights"
        ).weights.items():
            target = self.weights if name in self.weights else self.slots
            old = self._check_array_size({**self.weights, **self.slots}, name, np.asarray(array))
            updates.append((target, name, np.asarray(array, old.dtype).reshape(old.shape)))
        for target, name, array in updates:
            target[name] = array.copy()

    def serialize_model(self, proto: onnx.ModelProto) -> bytes:
        """Serializes a model with these weights and slots."""
        model = onnx.ModelProto()
        model.CopyFrom(proto)
        for tensor in model.graph.initializer:
            if tensor.name in self.weights:
                replace_initializer_value(tensor, self.weights[tensor.name])
        slots = [make_initializer(name, value) for name, value in self.slots.items()]
        model.graph.initializer.extend(slots)
        return model.SerializeToString()

    def _select_trained_weights(self) -> dict[str, Array]:
        return {name: self.weights[name] for name in self._trained}

    def _check_array_size(
        self, values_by_name: Mapping[str, Array], name: str, array: Array
    ) -> Array:
        if name not in values_by_name:
            raise check.value_error(
                f"there is no weight {name!r}", f"the weights are {sorted(values_by_name)}"
            )
        if values_by_name[name].size != array.size:
            raise check.value_error(
                f"weight {name!r} has shape {values_by_name[name].shape}, and the array "
                f"{array.shape}",
                "give an array of the weight's shape",
            )
        return values_by_name[name]
