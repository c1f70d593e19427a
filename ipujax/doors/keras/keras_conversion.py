"""Conversion of Keras models: variables by their paths, layers as parts."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.keras import keras_backend
from ipujax.doors.models import Model, Part, Tree, Variables, check
from ipujax.ground import PyTree, api_boundary
from ipujax.pipelines import current_stage

# The placeholder that Keras itself uses for an unknown size when it infers shapes.
_ANY_SIZE = 83
_SEED = "seed_generator_state"

_lock = threading.Lock()

TraceContext = Callable[[Any], contextlib.AbstractContextManager[object]]
"""A function that returns the context in which a model is traced."""

_trace_contexts: list[TraceContext] = []


def add_trace_context(context: TraceContext) -> None:
    """Traces all Keras models in a context from now on, for example one that marks stages."""
    if context not in _trace_contexts:
        _trace_contexts.append(context)


@check.guard
@api_boundary
def from_keras(model: Any, training: bool = False, *, example_args: Tree = None) -> Model:
    """Converts a Keras model, which runs on its JAX backend, to JAX functions.

    Variables are named by their paths, such as `encoder/dense_1/kernel`, followed by `_1` and so on
    where paths are the same. Their values are copies: later changes of the Keras model have no
    effect here. `apply` returns the result of `model(*inputs, training=training)` and the variables
    after the call, with new moving statistics in training and new random states. A key replaces
    the random states, which then stay as they were.

    Args:
      model: a built Sequential, functional or subclassed model.
      training: whether layers such as dropout and batch normalization work as in training.
      example_args: the arguments of a call, arrays or avals, with which the parts are found; needed
        only for a subclassed model with several arguments or with integer inputs.

    Returns:
      The converted model. Its parts are the layers that the model, or a model inside it, calls.

    Raises:
      FrontendError: (a `ValueError`) the model is not built.
      KerasError: (a `ValueError`) Keras runs on another backend.
      FrontendTypeError: (a `TypeError`) the model is no Keras model.
      MissingExtraError: (an `ImportError`) Keras is not installed.
    """
    keras = keras_backend.import_keras()
    check.require_instance(model, keras.Model, "the model", "a model of Keras")
    check.require_flag(training, "training")
    example = (
        None
        if example_args is None
        else tuple(check.require_sequence(example_args, "example_args"))
    )
    if not model.built:
        raise check.value_error(
            f"model {model.name!r} is not built, so that it has no variables yet",
            "call it once on data, or begin it with keras.Input(shape)",
        )
    names = name_variables(model.variables)
    variable_of_name = dict(zip(names, model.variables, strict=True))
    seeds = [name for name, variable in variable_of_name.items() if variable.name == _SEED]

    def apply_keras_model(
        variables: Variables, inputs: tuple[Tree, ...], key: Any
    ) -> tuple[Tree, Variables]:
        values = variables if key is None else {**variables, **_derive_seed_states(seeds, key)}
        mapping = [(variable_of_name[name], value) for name, value in values.items()]
        with _enter_trace_contexts(model), keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = model(*inputs, training=training)
        values_after = {
            name: scope.get_current_value(variable) for name, variable in variable_of_name.items()
        }
        return outputs, values_after if key is None else {
            **values_after,
            **{s: variables[s] for s in seeds},
        }

    def find_parts() -> tuple[Part, ...]:
        args = _find_example_inputs(keras, model) if example is None else example
        with _record_layer_calls(keras) as parts:
            jax.eval_shape(lambda *args: apply_keras_model(variables, args, None), *args)
        return tuple(parts)

    variables = {name: jnp.array(variable.value) for name, variable in variable_of_name.items()}
    trained = {id(variable) for variable in model.trainable_variables}
    trainable = tuple(
        name for name, variable in variable_of_name.items() if id(variable) in trained
    )
    return Model(variables, trainable, apply_keras_model, find_parts)


def name_variables(variables: list[Any]) -> list[str]:
    """Returns a unique name for each variable: its path, with a number where paths are the same."""
    names: list[str] = []
    for variable in variables:
        numbers = (f"_{number}" if number else "" for number in range(len(names) + 1))
        names.append(next(n for end in numbers if (n := variable.path + end) not in names))
    return names


def _derive_seed_states(seeds: list[str], key: Any) -> Variables:
    """Returns the state of each random seed generator, derived from a key."""
    keys = enumerate(seeds)
    return {name: jax.random.bits(jax.random.fold_in(key, i), (2,), "uint32") for i, name in keys}


@contextlib.contextmanager
def _enter_trace_contexts(model: object) -> Generator[None]:
    with contextlib.ExitStack() as stack:
        for context in _trace_contexts:
            stack.enter_context(context(model))
        yield


def _find_example_inputs(keras: Any, model: Any) -> tuple[Tree, ...]:
    """Returns avals that a model can be called with."""

    def aval(shape: Any, dtype: str) -> jax.ShapeDtypeStruct:
        sizes = tuple(_ANY_SIZE if size is None else size for size in shape)
        return jax.ShapeDtypeStruct(sizes, dtype)

    if hasattr(model, "inputs"):
        inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
        return (jax.tree.map(lambda x: aval(x.shape, x.dtype), inputs),)
    shapes = (model.get_build_config() or {}).get("input_shape")
    if shapes is None:
        raise check.value_error(
            f"the input shapes of model {model.name!r} are unknown, so its parts cannot be found",
            "give from_keras example_args, the arguments of a call",
        )
    return (jax.tree.map(lambda shape: aval(shape, "float32"), shapes, is_leaf=_is_shape),)


def _is_shape(value: object) -> bool:
    is_sequence = isinstance(value, (tuple, list))
    return is_sequence and all(size is None or isinstance(size, int) for size in value)


# --- calls of layers ------------------------------------------------------------------------------


class _Recording(threading.local):
    """The record of layer calls of this thread.

    Attributes:
      parts: the layer calls so far; None while nothing is recorded.
      path: the names of the models whose `Model.call` runs; None inside another layer.
    """

    parts: list[Part] | None = None
    path: tuple[str, ...] | None = ()


_layer_recording = _Recording()


@contextlib.contextmanager
def _record_layer_calls(keras: Any) -> Generator[list[Part]]:
    """Collects the layers and models that a Keras model calls in the block."""
    with _lock:
        _patch_operation_call(keras.Operation, keras.Layer, keras.Model)
    parts: list[Part] = []
    saved_recording, _layer_recording.parts, _layer_recording.path = (
        (_layer_recording.parts, _layer_recording.path),
        parts,
        (),
    )
    try:
        yield parts
    finally:
        _layer_recording.parts, _layer_recording.path = saved_recording


@functools.cache
def _patch_operation_call(operation: Any, layer: Any, model: Any) -> None:
    """Patches Keras's `Operation.__call__` to record layer calls, once in a process."""
    original = operation.__call__

    @functools.wraps(original)
    def call_and_record(self: Any, *args: object, **kwargs: object) -> PyTree:
        parts, path = _layer_recording.parts, _layer_recording.path
        if parts is None or path is None or not isinstance(self, layer):
            return original(self, *args, **kwargs)
        is_model = isinstance(self, model)
        if not is_model:
            parts.append(Part("/".join([*path[1:], self.name]), current_stage()))
        _layer_recording.path = (*path, self.name) if is_model else None
        try:
            return original(self, *args, **kwargs)
        finally:
            _layer_recording.path = path

    operation.__call__ = call_and_record
