"""Random operators."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.ground import check
from ipujax.operators.dropout_rate import check_dropout_rate
from ipujax.operators.random_keys import choose_random_key
from lowering import ops

_HALVES = 1 << 16


@check.guard
def dropout(
    x: ArrayLike,
    rate: float = 0.5,
    noise_shape: Sequence[int | None] | None = None,
    seed: ArrayLike | None = None,
    name: str | None = None,
    *,
    key: ArrayLike | None = None,
) -> jax.Array:
    """Zeroes elements at random and scales the others, so that sums are expected to stay.

    Seed 001, 18.14.14. The backward pass computes the mask again: two words of 32 bits are all
    that is kept for it.

    Args:
      x: floats.
      rate: the probability that an element is zeroed, in [0, 1); 0 gives `x`. From 1/256 to
        255/256 it is rounded to a multiple of 2**-16.
      noise_shape: the shape of the mask, which is repeated along axes of extent 1; None and an
        empty one stand for the shape of `x`, and None in it for the extent of `x`.
      seed: an integer of 64 bits or a pair of integers of 32 bits; equal ones give equal masks.
      name: a named scope for the operation.
      key: a JAX key instead of a seed. With neither, compiled code draws from the device's seed
        (`utils.reset_ipu_seed`): another mask in each run, replica, iteration and call, and for
        each example of a `vmap`.

    Returns:
      An array like `x`: zeros, and elements of `x` times 1 / (1 - rate).

    Raises:
      OperatorError: (a `ValueError`) a rate outside [0, 1); a noise shape that does not fit `x`;
        an `x` that holds no floats; both a seed and a key, or neither outside compiled code; a
        seed of another shape.
      ConfigTypeError: (a `TypeError`) a rate that is no number, or a seed or key that is none.
    """
    array = check.require_floats(x, "the input of dropout")
    drop_rate = check_dropout_rate(rate)
    shape = _check_noise_shape(noise_shape, array.shape)
    with check.operator_scope(name or "dropout"):
        if not drop_rate:
            return array
        start = choose_random_key(seed, key, "dropout", like=array)
        algorithm = jax.random.key_impl(start)
        return _apply_dropout(array, jax.random.key_data(start), drop_rate, shape, algorithm)


# Its derivative has the lines of what is jitted, which has that of the call; checkpoints have none.
@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _apply_dropout(
    x: jax.Array, words: jax.Array, rate: float, shape: tuple[int, ...], algorithm: object
) -> jax.Array:
    @jax.checkpoint
    def apply_mask(x: jax.Array, words: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(words, impl=algorithm)
        scale = min(1 / (1 - rate), float(jnp.finfo(x.dtype).max))
        scaled = x * np.asarray(scale, x.dtype)
        return jnp.where(_keep_mask(key, rate, shape), scaled, jnp.zeros((), x.dtype))

    return apply_mask(x, words)


def _keep_mask(key: jax.Array, rate: float, shape: tuple[int, ...]) -> jax.Array:
    if 1 / 256 <= rate <= 255 / 256:
        return ops.random_uint16(key, shape) >= np.uint16(round(rate * _HALVES))
    limit = min(round(rate * _HALVES * _HALVES), _HALVES * _HALVES - 1)
    return jax.random.bits(key, shape, jnp.uint32) >= np.uint32(limit)


def _check_noise_shape(
    given_shape: Iterable[SupportsIndex | None] | None, shape: tuple[int, ...]
) -> tuple[int, ...]:
    if given_shape is None:
        return shape
    try:
        noise = [None if extent is None else operator.index(extent) for extent in given_shape]
    except TypeError:
        raise check.type_error(
            f"the noise_shape of dropout is {given_shape!r}", "give a list of integers"
        ) from None
    if not noise:
        return shape
    if len(noise) != len(shape):
        raise check.value_error(
            f"the noise_shape of dropout, {noise}, has {len(noise)} entries: its length must equal "
            f"the rank of x, which is {len(shape)}",
            "give one entry for each axis of x: 1, or the extent of x",
        )
    pairs = zip(noise, shape, strict=True)
    full_shape = tuple(of_x if extent is None else extent for extent, of_x in pairs)
    if any(extent not in (1, of_x) for extent, of_x in zip(full_shape, shape, strict=True)):
        raise check.value_error(
            f"the noise_shape of dropout is {noise}, and x has shape {list(shape)}",
            "give 1, or the extent of x, for each axis",
        )
    return full_shape
