"""One model, forward and one update of its weights: by PyTorch, and as a function of JAX."""

from __future__ import annotations

import copy
import dataclasses as dc
import functools
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import torch

import ipujax as ipu
from tests.torch_models.catalog import FAMILIES
from tests.torch_models.example import Example, prepared

RATE = 0.1
NEAR_ZERO = 1e-3
LIMIT = 1e-4
SEEDS = 3

Arrays = dict[str, np.ndarray]


@dc.dataclass(frozen=True)
class Result:
    """What came of a model; differences are those of `difference`, None for what is not compared.

    Attributes:
      family: the library.
      name: of the model.
      seed: of its weights and inputs: the first that agrees, or the last.
      parameters: numbers in its parameters.
      forward: of the outputs in evaluation mode, the loss among them.
      worst: the names of the output, gradient and variable that differ most.
      loss: in training mode.
      gradients: of the parameters.
      step: of the parameters and buffers after a step of SGD.
      rounding: of PyTorch's gradients from those that it computes with 64 bits; None where the
        model cannot be run with these.
      seconds: that all this took.
    """

    family: str
    name: str
    seed: int
    parameters: int
    forward: float
    worst: tuple[str, ...]
    loss: float | None = None
    gradients: float | None = None
    step: float | None = None
    rounding: float | None = None
    seconds: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether no difference is larger than 1e-4."""
        compared = (self.forward, self.loss, self.gradients, self.step)
        return all(error is None or error <= LIMIT for error in compared)


@dc.dataclass(frozen=True)
class _Trained:
    loss: Arrays
    gradients: Arrays
    variables: Arrays


def compare(family: str, name: str) -> Result:
    """Runs a model both ways, from the same weights, on the same inputs.

    A number that is zero but for rounding may be on one side of a kink, such as that of a ReLU,
    here, and on its other side there: then gradients differ, if by little. Where results do not
    agree, another seed tells that from a mistake.
    """
    result = _compared(family, name, 0)
    for seed in range(1, SEEDS):
        if result.agrees:
            break
        result = _compared(family, name, seed)
    return result


def _compared(family: str, name: str, seed: int) -> Result:
    begin = time.perf_counter()
    example = prepared(FAMILIES[family]()[name], seed)
    # What is ours comes first: it has PyTorch's memory, which steps of PyTorch change.
    evaluated = _evaluated(example)
    trained = _trained(example) if example.train else None
    forward = difference(evaluated, _evaluated_by_torch(example))
    parameters = sum(parameter.numel() for parameter in example.module.parameters())
    result = Result(family, name, seed, parameters, forward[0], (forward[1],))
    if trained is not None:
        exact, theirs = _with_64_bits(example), _trained_by_torch(example)
        gradients = difference(trained.gradients, theirs.gradients)
        step = difference(trained.variables, theirs.variables)
        result = dc.replace(
            result,
            loss=difference(trained.loss, theirs.loss)[0],
            gradients=gradients[0],
            step=step[0],
            rounding=exact and difference(theirs.gradients, exact.gradients)[0],
            worst=(forward[1], gradients[1], step[1]),
        )
    return dc.replace(result, seconds=time.perf_counter() - begin)


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[float, str]:
    """The largest difference of arrays of the same names, and the name.

    It is relative to the largest number of the array, or to a thousandth of the largest of all
    arrays if that is larger: what is zero but for rounding, such as the gradient of a bias before
    batch normalization, has no figures to compare.
    """
    if ours.keys() != theirs.keys():
        raise ValueError(f"other values: {sorted(ours.keys() ^ theirs.keys())}")
    wide = {name: np.asarray(array, np.float64) for name, array in theirs.items()}
    floor = NEAR_ZERO * max((_largest(array) for array in wide.values()), default=0.0)
    worst, of = 0.0, ""
    for name, array in wide.items():
        scale = max(_largest(array), floor) or 1.0
        other = np.asarray(ours[name], np.float64)
        if other.shape != array.shape:
            raise ValueError(f"{name} has shape {other.shape} in the place of {array.shape}")
        error = float(np.max(np.abs(other - array), initial=0.0)) / scale
        if not error <= worst:  # or is NaN
            worst, of = error, name
    return worst, of


def _largest(array: np.ndarray) -> float:
    return float(np.max(np.abs(array), initial=0.0))


def _evaluated(example: Example) -> Arrays:
    example.module.eval()
    model = ipu.frontends.from_torch(example.module, (), example.inputs)
    apply = jax.jit(model.apply, static_argnums=_constants(example, 1))
    outputs, _ = apply(model.variables, *_inputs(example))
    return _named(outputs)


def _evaluated_by_torch(example: Example) -> Arrays:
    example.module.eval()
    with torch.no_grad():
        return _named(example.module(**example.inputs))


def _trained(example: Example) -> _Trained:
    example.module.train()
    model = ipu.frontends.from_torch(example.module, (), example.inputs)
    trained, _ = model.split(model.variables)
    key = jax.random.key(0)

    @functools.partial(jax.jit, static_argnums=_constants(example, 2))
    def step(variables: dict[str, Any], trained: dict[str, Any], *inputs: Any) -> Any:
        def loss_of(trained: dict[str, Any]) -> Any:
            outputs, after = model.apply(variables | trained, *inputs, key=key)
            return outputs["loss"].sum(), after

        (loss, after), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained)
        stepped = {name: value - RATE * gradients[name] for name, value in trained.items()}
        return loss, gradients, after | stepped

    loss, gradients, after = step(model.variables, trained, *_inputs(example))
    # Of what no output depends on there are none here, nor in PyTorch.
    nothing = {name: np.zeros(p.shape) for name, p in example.module.named_parameters()}
    nothing = {n: z for n, z in nothing.items() if example.module.get_parameter(n).requires_grad}
    return _Trained({"loss": np.array(loss)}, nothing | _named(gradients), _named(after))


def _trained_by_torch(example: Example) -> _Trained:
    module = example.module.train()
    parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
    optimizer = torch.optim.SGD(parameters.values(), lr=RATE)
    optimizer.zero_grad()
    loss = module(**example.inputs)["loss"]
    loss.backward()
    # PyTorch has none of what the loss does not depend on; JAX has zeros.
    gradients = _named({
        n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()
    })  # fmt: skip
    optimizer.step()
    variables = dict(module.named_parameters()) | dict(module.named_buffers())
    return _Trained({"loss": _array(loss)}, gradients, _named(variables))


def _with_64_bits(example: Example) -> _Trained | None:
    def wide(value: Any) -> Any:
        return value.double() if torch.is_tensor(value) and value.is_floating_point() else value

    inputs = {name: wide(value) for name, value in example.inputs.items()}
    module = copy.deepcopy(example.module).double()
    try:
        return _trained_by_torch(dc.replace(example, module=module, inputs=inputs))
    except RuntimeError:  # a constant of 32 bits among the operands
        return None


def _inputs(example: Example) -> list[Any]:
    return [
        jax.numpy.asarray(value.numpy()) if torch.is_tensor(value) else value
        for value in example.inputs.values()
    ]


def _constants(example: Example, before: int) -> tuple[int, ...]:
    """Which arguments are no tensors, behind so many others: JAX must not make arrays of them."""
    values = example.inputs.values()
    return tuple(number for number, v in enumerate(values, before) if not torch.is_tensor(v))


def _named(tree: Any, name: str = "") -> Arrays:
    """The arrays of nested dictionaries and sequences, by their paths."""
    if tree is None:
        return {}
    if isinstance(tree, Mapping):
        items = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    else:
        return {name: _array(tree)}
    found: Arrays = {}
    for key, value in items:
        found |= _named(value, f"{name}/{key}" if name else str(key))
    return found


def _array(value: Any) -> np.ndarray:
    return np.array(value.detach()) if torch.is_tensor(value) else np.array(value)
