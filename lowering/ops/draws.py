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
WORDS = 2
SEED_WORDS = 4


def draw_key_words(like: Array | None = None) -> Array:
    """Draws two fresh words, uint32[2], for a key.

    Args:
      like: an array, or None; under `vmap` over it each example draws for itself.
    """
    return draw_p.bind(*(() if like is None else (like,)), examples=())


def wrap_words_as_key(words: Array) -> Array:
    """Returns the JAX key of drawn words."""
    return typed_jax.wrap_key_data(words, impl=ALGORITHM)


def derive_key_words(words: Array, number: Array | int) -> Array:
    """Returns the words of the key that follows from a key and a number (uint32[])."""
    return key_p.bind(words, typed_jax.asarray(number, jnp.uint32))


def derive_keys_of_examples(words: Array, number: int, examples: tuple[int, ...]) -> Array:
    """Returns the words of a key for each example: `[*examples, 2]`."""
    key = derive_key_words(words, number)
    if examples:
        numbers = typed_jax.arange(math.prod(examples), dtype=jnp.uint32)
        keys: Array = jax.vmap(functools.partial(key_p.bind, key))(numbers)
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


def _key_words_aval(*_: ShapedArray, examples: tuple[int, ...]) -> ShapedArray:
    return ShapedArray((*examples, WORDS), jnp.uint32.dtype)


def _refuse_draw_outside_compiled_code(*_: Array, **params: object) -> Array:
    raise LoweringError(
        "random numbers of the device's seed are asked for outside compiled code",
        where=current_user_line(),
        fix="give the operation a seed or a key, or call the function in one that ipu.compile made",
    )


def _draw_vmap(
    primitive: Primitive, values: Arrays, dims: Sequence[int], *, examples: tuple[int, ...]
) -> Results:
    count = values[0].shape[dims[0]]
    return primitive.bind(*values, examples=(count, *examples)), 0


def _keep_draw_in_checkpoint(
    _: Any, are_unknown: Sequence[bool], are_instantiated: Sequence[bool], eqn: JaxprEqn
) -> Any:
    """Makes `jax.checkpoint` keep the words, whatever its policy says."""
    if not any(are_unknown):
        return eqn, None, [False], [False], []
    missing = [v for v, is_there in zip(eqn.invars, are_instantiated, strict=True) if not is_there]
    return None, eqn, [True], [True], missing


def _fold_in_number(words: Array, number: Array) -> Array:
    if words.ndim > 1:
        return jax.vmap(_fold_in_number)(words, number)
    return jax.random.key_data(jax.random.fold_in(wrap_words_as_key(words), number))


def _key_aval(words: ShapedArray, _: ShapedArray) -> ShapedArray:
    return ShapedArray(words.shape, jnp.uint32.dtype)


def _make_random_uint16(words: Array, *, shape: tuple[int, ...], algorithm: Any) -> Array:
    if words.ndim > 1:
        return jax.vmap(functools.partial(_make_random_uint16, shape=shape, algorithm=algorithm))(
            words
        )
    size = math.prod(shape)
    if algorithm == ALGORITHM:
        counters = lax.iota(jnp.uint32, 2 * -(-size // 4))
        drawn = threefry_2x32(words, counters)
    else:
        key = typed_jax.wrap_key_data(words, impl=algorithm)
        drawn = jax.random.bits(key, (-(-size // 2),), jnp.uint32)
    halves = jnp.concatenate([drawn & 0xFFFF, drawn >> 16]).astype(jnp.uint16)
    return halves[:size].reshape(shape)


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
