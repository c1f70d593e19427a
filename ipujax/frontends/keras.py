"""Models of Keras: their variables by their paths, their layers as parts."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.checks.lines import api_boundary
from ipujax.frontends import keras_backend
from ipujax.frontends.checks import check
from ipujax.frontends.model import Model, Part, Tree, Variables
from ipujax.pipelines.places import current_stage

# What stands for a size that is not known, as where Keras itself has to find out shapes.
_ANY_SIZE = 83
_SEED = "seed_generator_state"

_lock = threading.Lock()

Around = Callable[[Any], contextlib.AbstractContextManager[object]]
"""Gives, for a model, a context in which it is traced."""

_around: list[Around] = []


def trace_within(around: Around) -> None:
    """Has all models traced in a context, from now on: what assigns stages to layers marks them."""
    if around not in _around:
        _around.append(around)


@check.guard
@api_boundary
def from_keras(model: Any, training: bool = False, *, example_args: Tree = None) -> Model:
    """A model of Keras, on its JAX backend, as functions of JAX.

    Variables have their paths for names, such as `encoder/dense_1/kernel`, followed by `_1` and so
    on where two are the same. The values are copies: what becomes of the model's own later changes
    nothing here. `apply` gives what `model(*inputs, training=training)` does, and the variables as
    that leaves them: moving statistics in training, and the states of random numbers. A key takes
    the place of these states, which then stay as they were.

    Args:
      model: a Sequential, functional or subclassed model that is built.
      training: whether layers such as dropout and batch normalization work as in training.
      example_args: the arguments of a call, arrays or avals, by which the parts are found; only
        for a subclassed model with more than one argument, or with integers that it needs to be so.

    Returns:
      The model. Its parts are the layers that it, or a model inside it, calls.

    Raises:
      FrontendError: (a `ValueError`) a model that is not built.
      KerasError: (the same) Keras on another backend.
      FrontendTypeError: (a `TypeError`) no model of Keras.
      MissingExtraError: (an `ImportError`) Keras is not installed.
    """
    keras = keras_backend.keras()
    check.instance(model, keras.Model, "the model", "a model of Keras")
    check.flag(training, "training")
    example = None if example_args is None else tuple(check.sequence(example_args, "example_args"))
    if not model.built:
        raise check.refuse(
            f"model {model.name!r} is not built, so that it has no variables yet",
            "call it once on data, or begin it with keras.Input(shape)",
        )
    names = names_of(model.variables)
    own = dict(zip(names, model.variables, strict=True))
    seeds = [name for name, variable in own.items() if variable.name == _SEED]

    def function(
        variables: Variables, inputs: tuple[Tree, ...], key: Any
    ) -> tuple[Tree, Variables]:
        given = variables if key is None else {**variables, **_seeded(seeds, key)}
        mapping = [(own[name], value) for name, value in given.items()]
        with _traced(model), keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = model(*inputs, training=training)
        after = {name: scope.get_current_value(variable) for name, variable in own.items()}
        return outputs, after if key is None else {**after, **{s: variables[s] for s in seeds}}

    def find_parts() -> tuple[Part, ...]:
        args = _example(keras, model) if example is None else example
        with _recorded(keras) as parts:
            jax.eval_shape(lambda *args: function(variables, args, None), *args)
        return tuple(parts)

    variables = {name: jnp.array(variable.value) for name, variable in own.items()}
    trained = {id(variable) for variable in model.trainable_variables}
    trainable = tuple(name for name, variable in own.items() if id(variable) in trained)
    return Model(variables, trainable, function, find_parts)


def names_of(variables: list[Any]) -> list[str]:
    """A name for each variable: its path, and a number where it would not be the only one."""
    names: list[str] = []
    for variable in variables:
        numbers = (f"_{number}" if number else "" for number in range(len(names) + 1))
        names.append(next(n for end in numbers if (n := variable.path + end) not in names))
    return names


def _seeded(seeds: list[str], key: Any) -> Variables:
    """States of random numbers of a key: one of its own for each."""
    keys = enumerate(seeds)
    return {name: jax.random.bits(jax.random.fold_in(key, i), (2,), "uint32") for i, name in keys}


@contextlib.contextmanager
def _traced(model: Any) -> Generator[None]:
    with contextlib.ExitStack() as stack:
        for around in _around:
            stack.enter_context(around(model))
        yield


def _example(keras: Any, model: Any) -> tuple[Tree, ...]:
    """Avals that a model can be called with."""

    def aval(shape: Any, dtype: str) -> jax.ShapeDtypeStruct:
        sizes = tuple(_ANY_SIZE if size is None else size for size in shape)
        return jax.ShapeDtypeStruct(sizes, dtype)

    if hasattr(model, "inputs"):
        inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
        return (jax.tree.map(lambda x: aval(x.shape, x.dtype), inputs),)
    shapes = (model.get_build_config() or {}).get("input_shape")
    if shapes is None:
        raise check.refuse(
            f"nobody knows what model {model.name!r} takes, so that its parts cannot be found",
            "give from_keras example_args, the arguments of a call",
        )
    return (jax.tree.map(lambda shape: aval(shape, "float32"), shapes, is_leaf=_is_shape),)


def _is_shape(value: Any) -> bool:
    is_sequence = isinstance(value, (tuple, list))
    return is_sequence and all(size is None or isinstance(size, int) for size in value)


# --- calls of layers ------------------------------------------------------------------------------


class _Current(threading.local):
    """What this thread records.

    Attributes:
      parts: the calls of layers so far; None while nobody wants them.
      path: the names of the models whose `call` runs; None in that of another layer.
    """

    parts: list[Part] | None = None
    path: tuple[str, ...] | None = ()


_current = _Current()


@contextlib.contextmanager
def _recorded(keras: Any) -> Generator[list[Part]]:
    """Collects the layers that a model calls in the block, and the models in it."""
    with _lock:
        _extend(keras.Operation, keras.Layer, keras.Model)
    parts: list[Part] = []
    before, _current.parts, _current.path = (_current.parts, _current.path), parts, ()
    try:
        yield parts
    finally:
        _current.parts, _current.path = before


@functools.cache
def _extend(operation: Any, layer: Any, model: Any) -> None:
    """Has Keras's operations tell who is called, once in a process."""
    original = operation.__call__

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        parts, path = _current.parts, _current.path
        if parts is None or path is None or not isinstance(self, layer):
            return original(self, *args, **kwargs)
        is_model = isinstance(self, model)
        if not is_model:
            parts.append(Part("/".join([*path[1:], self.name]), current_stage()))
        _current.path = (*path, self.name) if is_model else None
        try:
            return original(self, *args, **kwargs)
        finally:
            _current.path = path

    operation.__call__ = call
