"""The primitives of random numbers that start at the device's seed.

A draw binds `ipu_draw`, which leaves open which numbers come: the pass `resolve_draws` makes keys
of the run, the replica, the iterations around and the position in the program, by `ipu_draw_key`.
Derivatives keep the drawn words, and so does recomputation: nothing is drawn twice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering.ground import LoweringError
from lowering.jaxprs import (
    JaxprEqn,
    Primitive,
    ShapedArray,
    current_user_line,
    threefry_2x32,
    typed_jax,
)
from lowering.ops.define import define_primitive, jvp_of_constant, vmap_along_leading_axes
from lowering.ops.types import Array, Arrays, Results

# A key's algorithm must not depend on what the user sets for keys of his own.
ALGORITHM = "threefry2x32"
# Of the numbers that round: some integer operations for each, where threefry takes about a hundred.
ROUNDING_ALGORITHM = "multiply_and_shift"
WORDS = 2
SEED_WORDS = 4
# Odd, so that no two numbers give the same key: 2^32 by the golden ratio, and a prime.
_KEY_MULTIPLIERS = (0x9E3779B9, 0x85EBCA6B)


def draw_key_words(like: Array | None = None) -> Array:
    """Draws two fresh words, uint32[2], for a key.

    Args:
      like: an array, or None; under `vmap` over it each example draws for itself.
    """
    return draw_p.bind(*(() if like is None else (like,)), examples=(), algorithm=ALGORITHM)


def draw_rounding_bits(shape: Sequence[int]) -> Array:
    """Draws fresh uniform 16-bit numbers, uint16, good enough to round with.

    A program in float16 may round at thousands of places, each of which XLA has to compile.
    """
    words = draw_p.bind(examples=(), algorithm=ROUNDING_ALGORITHM)
    return halves_p.bind(words, shape=tuple(shape), algorithm=ROUNDING_ALGORITHM)


def wrap_words_as_key(words: Array) -> Array:
    """Returns the JAX key of drawn words."""
    return typed_jax.wrap_key_data(words, impl=ALGORITHM)


def derive_key_words(words: Array, number: Array | int) -> Array:
    """Returns the words of the key that follows from a key and a number (uint32[])."""
    return key_p.bind(words, typed_jax.asarray(number, jnp.uint32), algorithm=ALGORITHM)


def derive_keys_of_examples(
    words: Array, number: int, examples: tuple[int, ...], algorithm: str
) -> Array:
    """Returns the words of a key of an algorithm for each example: `[*examples, 2]`."""
    key = key_p.bind(words, typed_jax.asarray(number, jnp.uint32), algorithm=algorithm)
    if algorithm == ROUNDING_ALGORITHM and not examples:
        return key
    if examples:
        numbers = typed_jax.arange(math.prod(examples), dtype=jnp.uint32)
        derive_key = functools.partial(key_p.bind, key, algorithm=algorithm)
        keys: Array = jax.vmap(derive_key)(numbers)
        key = keys.reshape(*examples, WORDS)
    # Without it, XLA would derive a key again for each random number.
    return typed_jax.optimization_barrier(key)


def first_key_of_run(seed: Array, replica: Array | int) -> Array:
    """Returns the words that a replica's run starts from.

    Args:
      seed: uint32[4]: the device's seed (lower word first), the number of the run, and 1, or 0 to
        let all replicas draw the same numbers.
      replica: the replica's number.
    """
    run = derive_key_words(seed[:2], seed[2])
    return derive_key_words(run, seed[3] * typed_jax.asarray(replica, jnp.uint32))


def random_uint16(key: Array, shape: Sequence[int]) -> Array:
    """Returns uniform random 16-bit numbers, uint16, far cheaper than `jax.random.bits`.

    `jax.random.bits` makes two words for each number and throws all but 16 bits away.
    """
    words, algorithm = jax.random.key_data(key), jax.random.key_impl(key)
    return halves_p.bind(words, shape=tuple(shape), algorithm=algorithm)


def _key_words_aval(*_: ShapedArray, examples: tuple[int, ...], algorithm: str) -> ShapedArray:
    return ShapedArray((*examples, WORDS), jnp.uint32.dtype)


def _refuse_draw_outside_compiled_code(*_: Array, **params: object) -> Array:
    raise LoweringError(
        "random numbers of the device's seed are asked for outside compiled code",
        where=current_user_line(),
        fix="give the operation a seed or a key, or call the function in one that ipu.compile made",
    )


def _draw_vmap(
    primitive: Primitive,
    values: Arrays,
    dims: Sequence[int],
    *,
    examples: tuple[int, ...],
    algorithm: str,
) -> Results:
    count = values[0].shape[dims[0]]
    return primitive.bind(*values, examples=(count, *examples), algorithm=algorithm), 0


def _keep_draw_in_checkpoint(
    _: Any, are_unknown: Sequence[bool], are_instantiated: Sequence[bool], eqn: JaxprEqn
) -> Any:
    """Makes `jax.checkpoint` keep the words, whatever its policy says."""
    if not any(are_unknown):
        return eqn, None, [False], [False], []
    missing = [v for v, is_there in zip(eqn.invars, are_instantiated, strict=True) if not is_there]
    return None, eqn, [True], [True], missing


def _fold_in_number(words: Array, number: Array, *, algorithm: str) -> Array:
    if words.ndim > 1:
        return jax.vmap(functools.partial(_fold_in_number, algorithm=algorithm))(words, number)
    if algorithm == ROUNDING_ALGORITHM:
        return words ^ (number * typed_jax.asarray(_KEY_MULTIPLIERS, jnp.uint32))
    return jax.random.key_data(jax.random.fold_in(wrap_words_as_key(words), number))


def _key_aval(words: ShapedArray, _: ShapedArray, *, algorithm: str) -> ShapedArray:
    return ShapedArray(words.shape, jnp.uint32.dtype)


def _make_random_uint16(words: Array, *, shape: tuple[int, ...], algorithm: Any) -> Array:
    if words.ndim > 1:
        return jax.vmap(functools.partial(_make_random_uint16, shape=shape, algorithm=algorithm))(
            words
        )
    size = math.prod(shape)
    if algorithm == ROUNDING_ALGORITHM:
        return _mix_counters(words, lax.iota(jnp.uint32, size).reshape(shape))
    if algorithm == ALGORITHM:
        counters = lax.iota(jnp.uint32, 2 * -(-size // 4))
        drawn = threefry_2x32(words, counters)
    else:
        key = typed_jax.wrap_key_data(words, impl=algorithm)
        drawn = jax.random.bits(key, (-(-size // 2),), jnp.uint32)
    halves = jnp.concatenate([drawn & 0xFFFF, drawn >> 16]).astype(jnp.uint16)
    return halves[:size].reshape(shape)


def _mix_counters(words: Array, counters: Array) -> Array:
    """Returns 16 bits that each counter gives with two words, by multiplying and shifting.

    The multipliers and shifts are those of the function `lowbias32`, whose bits depend on all bits
    before nearly evenly (https://nullprogram.com/blog/2018/07/31/).
    """
    x = counters + words[0]
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x ^= words[1]  # so that two keys of near first words do not give the same numbers
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return (x >> 16).astype(jnp.uint16)


def _random_uint16_aval(words: ShapedArray, *, shape: tuple[int, ...], **_: object) -> ShapedArray:
    return ShapedArray((*words.shape[:-1], *shape), jnp.uint16.dtype)


draw_p = define_primitive(
    "ipu_draw",
    _key_words_aval,
    _refuse_draw_outside_compiled_code,
    jvp=jvp_of_constant,
    vmap=_draw_vmap,
)
typed_jax.partial_eval_jaxpr_custom_rules[draw_p] = _keep_draw_in_checkpoint
# One operation each, whatever they are on a CPU: a tile of an IPU has a generator of its own.
key_p = define_primitive("ipu_draw_key", _key_aval, _fold_in_number, vmap=vmap_along_leading_axes)
halves_p = define_primitive(
    "ipu_random_halves", _random_uint16_aval, _make_random_uint16, vmap=vmap_along_leading_axes
)


def is_draw(eqn: JaxprEqn) -> bool:
    """Returns whether an equation draws."""
    return eqn.primitive is draw_p
