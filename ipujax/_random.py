"""Where random operators start: a seed, a key, or the device's seed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import _tracing
from ipujax._collectives import refuse_type
from ipujax._operands import refuse
from lowering import draws, jaxpr

_WORD = 0xFFFFFFFF


def draw_key(seed: Any, key: Any, where: str, like: Any = None) -> jax.Array:
    """The JAX key that a random operator draws from.

    Args:
      seed: an integer of 64 bits, or an integer array without dimensions; or a pair of integers
        of 32 bits. Equal ones give equal keys. Or None.
      key: a JAX key, typed or the two words of a raw one. Or None.
      where: the operator's name, for errors.
      like: with neither seed nor key: an array whose examples under `vmap` each draw for
        themselves. None lets them share what is drawn.

    Returns:
      A typed key, a scalar. With neither, one that is another in each run, replica, iteration and
      call, and depends on `utils.reset_ipu_seed`.

    Raises:
      ConfigTypeError: (a `TypeError`) the seed is no integer, or the key no key.
      OperatorError: (a `ValueError`) both are given, or neither outside compiled code.
    """
    if seed is not None and key is not None:
        raise refuse(f"{where} was given both a seed and a key", "give one of them")
    if key is not None:
        return _checked(key, where)
    if seed is not None:
        return _seeded(seed, where)
    if _tracing.current() is None:
        raise refuse(
            f"{where} was given neither a seed nor a key, and is not in compiled code, where the "
            "device has a seed",
            "give one of them, as in seed=42 or key=jax.random.key(42), or compile the function "
            "with ipu.compile and call that directly",
        )
    return draws.as_key(draws.draw(like))


def _seeded(seed: Any, where: str) -> jax.Array:
    if isinstance(seed, int) and not isinstance(seed, bool):
        # Without 64-bit numbers JAX drops a seed's upper half.
        key = jax.random.key(np.uint32(seed & _WORD))
        upper = (seed >> 32) & _WORD
        return jax.random.fold_in(key, np.uint32(upper)) if upper else key
    words = np.asarray(seed) if isinstance(seed, (tuple, list)) else seed
    dtype = getattr(words, "dtype", None)
    is_integer = dtype is not None and jnp.issubdtype(dtype, np.integer)
    if not is_integer or np.shape(words) not in ((), (2,)):
        raise refuse_type(
            f"the seed of {where} is {seed!r}",
            "give one integer, a pair of integers of 32 bits, or a JAX key as `key`",
        )
    if np.shape(words) == ():
        return jax.random.key(words)
    return draws.as_key(_word_pair(words, where))


def _word_pair(words: Any, where: str) -> Any:
    if not jaxpr.is_tracer(words):
        words = np.asarray(words)
        if not all(-(2**31) <= int(word) < 2**32 for word in words):
            raise refuse(
                f"the seed of {where} is {words.tolist()}", "give integers that fit into 32 bits"
            )
    return words.astype(np.uint32)


def _checked(key: Any, where: str) -> jax.Array:
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and key.shape == ():
        return key
    if dtype == np.uint32 and np.shape(key) == (2,):
        return jax.random.wrap_key_data(key)
    raise refuse_type(
        f"the key of {where} is {key!r}", "give one key, as jax.random.key(42) makes it"
    )
