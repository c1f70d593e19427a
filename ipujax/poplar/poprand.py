"""poprand: random numbers, which are JAX's for a seed and not the chip's.

A seed is an UNSIGNED_INT tensor of two elements. Without one, numbers come from a state of the
graph that `setSeed` sets, and that advances with each operation, in each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.poplar.element_types import UNSIGNED_INT, Type, require_type
from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_planned, read_title
from ipujax.poplar.library_operations import addCodelets as addCodelets
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line

_STATE = "poprand/state"


@check.guard
def uniform(
    graph: Graph, masterSeed: Tensor | None, seedModifier: int, reference: Tensor, outType: Type,
    minVal: float, maxVal: float, prog: Sequence, *rest: Any,
) -> Tensor:  # fmt: skip
    """Adds uniform random numbers to a program; integers of INT include both bounds.

    Args:
      graph: the graph.
      masterSeed: the seed, or None for the graph's state.
      seedModifier: another number gives other numbers.
      reference: a tensor of the shape, and with the mapping, of the numbers.
      outType: their type.
      minVal: the least.
      maxVal: the largest.
      prog: the sequence.
      *rest: a name.
    """
    dtype = require_type(outType, "outType").dtype

    def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        if jnp.issubdtype(dtype, jnp.integer):
            integers = jax.random.randint(key, shape, int(minVal), int(maxVal) + 1, jnp.int32)
            return integers.astype(dtype)
        return jax.random.uniform(key, shape, dtype, minVal, maxVal)

    return _add_draw(graph, "uniform", masterSeed, seedModifier, reference, draw, prog, rest)


@check.guard
def normal(
    graph: Graph, masterSeed: Tensor | None, seedModifier: int, reference: Tensor, outType: Type,
    mean: float, stdDev: float, prog: Sequence, *rest: Any,
) -> Tensor:  # fmt: skip
    """Adds normally distributed random numbers to a program; see `uniform`."""
    dtype = require_type(outType, "outType").dtype

    def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return (mean + stdDev * jax.random.normal(key, shape, jnp.float32)).astype(dtype)

    return _add_draw(graph, "normal", masterSeed, seedModifier, reference, draw, prog, rest)


@check.guard
def truncatedNormal(
    graph: Graph, masterSeed: Tensor | None, seedModifier: int, reference: Tensor, outType: Type,
    mean: float, stdDev: float, alpha: float, prog: Sequence, *rest: Any,
) -> Tensor:  # fmt: skip
    """Adds normal random numbers within `alpha` standard deviations of the mean; see `uniform`."""
    dtype = require_type(outType, "outType").dtype

    def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        standard = jax.random.truncated_normal(key, -alpha, alpha, shape, jnp.float32)
        return (mean + stdDev * standard).astype(dtype)

    return _add_draw(
        graph, "truncatedNormal", masterSeed, seedModifier, reference, draw, prog, rest
    )


@check.guard
def bernoulli(
    graph: Graph, masterSeed: Tensor | None, seedModifier: int, reference: Tensor, outType: Type,
    prob: float, prog: Sequence, *rest: Any,
) -> Tensor:  # fmt: skip
    """Adds zeros and, with a probability, ones to a program; see `uniform`."""
    dtype, prob = require_type(outType, "outType").dtype, _require_probability(prob)

    def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.bernoulli(key, prob, shape).astype(dtype)

    return _add_draw(graph, "bernoulli", masterSeed, seedModifier, reference, draw, prog, rest)


@check.guard
def dropout(
    graph: Graph, masterSeed: Tensor | None, seedModifier: int, input: Tensor, reference: Tensor,
    keepProbability: float, scale: float, prog: Sequence, *rest: Any,
) -> Tensor:  # fmt: skip
    """Adds dropout to a program: elements times `scale`, or zero; a seed fixes which.

    Args:
      graph: the graph.
      masterSeed: the seed, or None for the graph's state.
      seedModifier: another number gives other places.
      input: the tensor.
      reference: a tensor of its shape.
      keepProbability: of an element.
      scale: the factor of elements that are kept.
      prog: the sequence.
      *rest: a name.
    """
    probability = _require_probability(keepProbability)
    if check.require_instance(input, Tensor, "input").shape() != reference.shape():
        raise index_error(f"dropout of {input} with {reference}", where=user_line())

    def draw(key: jax.Array, shape: tuple[int, ...], x: jax.Array) -> jax.Array:
        is_kept = jax.random.bernoulli(key, probability, shape)
        return jnp.where(is_kept, x * jnp.asarray(scale, x.dtype), jnp.zeros((), x.dtype))

    return _add_draw(
        graph, "dropout", masterSeed, seedModifier, reference, draw, prog, rest, operands=[input]
    )


@check.guard
def setSeed(
    graph: Graph, masterSeed: Tensor, seedModifier: int, prog: Sequence, *rest: Any
) -> None:
    """Adds a program that sets the graph's state, which numbers without a seed come from."""
    modifier = check.require_integer(seedModifier, "seedModifier", at_least=0)
    title = read_title("setSeed", rest)

    def compute(seed: jax.Array) -> jax.Array:
        return jax.random.key_data(_key_of(seed, modifier))

    add_planned(graph, prog, title, compute, [_require_seed(masterSeed)], outs=[_state_of(graph)])


def _add_draw(
    graph: Graph,
    name: str,
    seed: Tensor | None,
    modifier: int,
    reference: Tensor,
    draw: Callable[..., jax.Array],
    prog: Sequence,
    trailing_arguments: tuple[Any, ...],
    *,
    operands: list[Tensor] | None = None,
) -> Tensor:
    """Adds random numbers on a reference's tiles; without a seed the graph's state advances."""
    modifier = check.require_integer(modifier, "seedModifier", at_least=0)
    check.require_instance(reference, Tensor, "reference")
    state = _state_of(graph) if seed is None else _require_seed(seed)
    shape, title = tuple(reference.shape()), read_title(name, trailing_arguments)

    def compute(state: jax.Array, *operand_arrays: jax.Array) -> tuple[jax.Array, ...]:
        numbers = draw(_key_of(state, modifier), shape, *operand_arrays)
        if seed is not None:
            return (numbers,)
        return numbers, state + jnp.array([0, 1], jnp.uint32)

    outs = [None, state] if seed is None else [None]
    numbers = add_planned(graph, prog, title, compute, [state, *(operands or [])], outs=outs)[0]
    graph.tile_of[numbers.elements] = graph.tile_of[reference.elements]
    return numbers


def _key_of(seed: jax.Array, modifier: int) -> jax.Array:
    return jax.random.fold_in(
        jax.random.wrap_key_data(seed.reshape(2), impl="threefry2x32"), modifier
    )


def _state_of(graph: Graph) -> Tensor:
    """Returns the tensor of the graph's state, which is zero at first."""
    for variable in graph.variables:
        if variable.name == _STATE:
            elements = np.arange(variable.start, variable.start + variable.size)
            return Tensor(graph, elements, UNSIGNED_INT, _STATE)
    state = graph.addVariable(UNSIGNED_INT, [2], _STATE)
    graph.map_linearly(state)
    graph.setInitialValue(state, 0)
    return state


def _require_seed(seed: Any) -> Tensor:
    check.require_instance(seed, Tensor, "masterSeed")
    if seed.type != UNSIGNED_INT or seed.numElements() != 2:
        raise index_error(
            f"the seed is {seed}", where=user_line(), fix="give UNSIGNED_INT, two elements"
        )
    return seed


def _require_probability(value: Any) -> float:
    probability = check.require_number(value, "the probability", "give a number from 0 to 1")
    if not 0 <= probability <= 1 or math.isnan(probability):
        raise check.value_error(f"the probability is {probability}", "give a number from 0 to 1")
    return probability
