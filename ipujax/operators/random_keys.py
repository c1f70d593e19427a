"""The keys of random operators: from a seed, a key, or the device's seed."""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.ground import PyTree, check
from ipujax.host import trace_frames
from lowering import jaxpr, ops

_WORD = 0xFFFFFFFF
_SEEDS = "give one integer, a pair of integers of 32 bits, or a JAX key as `key`"


def choose_random_key(
    seed: ArrayLike | None, key: ArrayLike | None, operator: str, like: jax.Array | None = None
) -> jax.Array:
    """Returns the JAX key that a random operator draws from.

    Args:
      seed: an integer of 64 bits, or an integer array without dimensions; or a pair of integers
        of 32 bits. Equal ones give equal keys, traced or not, whatever algorithm JAX's keys have
        by default. Or None.
      key: a JAX key, typed or the words of a raw one. Or None.
      operator: the operator's name, for errors.
      like: with neither seed nor key: an array whose examples under `vmap` each draw for
        themselves. None lets them share what is drawn.

    Returns:
      A typed key, a scalar. With neither, one that is another in each run, replica, iteration and
      call, and depends on `utils.reset_ipu_seed`.

    Raises:
      ConfigTypeError: (a `TypeError`) the seed holds no integers, or the key is none.
      OperatorError: (a `ValueError`) both are given, or neither outside compiled code; a seed of
        another shape, or of more bits.
    """
    if seed is not None and key is not None:
        raise check.value_error(f"{operator} was given both a seed and a key", "give one of them")
    if key is not None:
        return _check_key(key, operator)
    if seed is not None:
        return _key_from_seed(seed, operator)
    if trace_frames.current_trace_frame() is None:
        raise check.value_error(
            f"{operator} was given neither a seed nor a key, and is not in compiled code, where "
            "the device has a seed",
            "give one of them, as in seed=42 or key=jax.random.key(42), or compile the function "
            "with ipu.compile and call that directly",
        )
    return ops.wrap_words_as_key(ops.draw_key_words(like))


def _key_from_seed(seed: ArrayLike | None, operator: str) -> jax.Array:
    traced = any(map(jaxpr.is_tracer, jax.tree.leaves(seed)))
    numbers = _seed_integers(seed, operator, traced)
    if numbers.shape == (2,):
        words = [numbers[0], numbers[1]]
        if not traced and not all(-(2**31) <= int(word) < 2**32 for word in words):
            raise check.value_error(
                f"the seed of {operator} is {seed!r}", "give integers that fit into 32 bits"
            )
    elif numbers.shape == ():
        # As `jax.random.key` has them: the upper word first. All bits of a number that has no
        # upper word, as types of 32 bits and less, are its sign once they are shifted out.
        words = [numbers >> 31 >> 1, numbers]
    else:
        raise check.value_error(f"the seed of {operator} has shape {list(numbers.shape)}", _SEEDS)
    return ops.wrap_words_as_key(jnp.stack([_lower_word(word) for word in words]))


def _seed_integers(seed: ArrayLike | None, operator: str, traced: bool) -> PyTree:
    """Returns a seed as an array of integers, as a NumPy one if its values are known."""
    try:
        numbers = jnp.asarray(seed) if traced else np.asarray(seed)
    except (TypeError, ValueError, OverflowError):  # a key, or a ragged list
        raise check.type_error(f"the seed of {operator} is {seed!r}", _SEEDS) from None
    if numbers.dtype == np.object_ and isinstance(seed, int):
        raise check.value_error(
            f"the seed of {operator} is {seed}", "give an integer that fits into 64 bits"
        )
    if not jnp.issubdtype(numbers.dtype, np.integer):
        raise check.type_error(f"the seed of {operator} is {seed!r}", _SEEDS)
    return numbers


def _lower_word(number: PyTree) -> PyTree:
    """Returns the lower 32 bits of an integer."""
    return number.astype(jnp.uint32) if jaxpr.is_tracer(number) else np.uint32(int(number) & _WORD)


def _check_key(key: PyTree, operator: str) -> jax.Array:
    if getattr(key, "dtype", None) == np.uint32:
        with contextlib.suppress(TypeError, ValueError):  # no words of a key of JAX's default
            key = jax.random.wrap_key_data(key)
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and key.shape == ():
        return key
    raise check.type_error(
        f"the key of {operator} is {key!r}", "give one key, as jax.random.key(42) makes it"
    )
