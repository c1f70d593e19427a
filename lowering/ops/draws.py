"""The primitives of random numbers that start at the device's seed.

Whoever draws binds `ipu_draw`, which says nothing about which numbers come: the pass
`resolve_draws` makes keys of the run, the replica, the iterations around and the place in the
program, by `ipu_draw_key`. Derivatives keep what was drawn, two words, and so does everything that
computes again: nothing is drawn twice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import partial_eval

from lowering.errors import LoweringError
from lowering.jaxpr import JaxprEqn, Primitive, ShapedArray, current_user_line, threefry_2x32
from lowering.ops.define import constant, define, leading
from lowering.ops.types import Array, Arrays, Results

# A key's algorithm must not depend on what the user sets for keys of his own.
ALGORITHM = "threefry2x32"
WORDS = 2
SEED_WORDS = 4


def draw(like: Array | None = None) -> Array:
    """Two fresh words, uint32[2], to make a key of.

    Args:
      like: an array, or None; under `vmap` over it each example draws for itself.
    """
    return draw_p.bind(*(() if like is None else (like,)), examples=())


def as_key(words: Array) -> Array:
    """The JAX key of drawn words."""
    return jax.random.wrap_key_data(words, impl=ALGORITHM)


def key_of(words: Array, number: Array | int) -> Array:
    """The words of one of the many keys that follow from a key; `number` is uint32[]."""
    return key_p.bind(words, jnp.asarray(number, jnp.uint32))


def keys_of(words: Array, number: int, examples: tuple[int, ...]) -> Array:
    """The words of a key for each example: `[*examples, 2]`."""
    key = key_of(words, number)
    if examples:
        numbers = jnp.arange(math.prod(examples), dtype=jnp.uint32)
        key = jax.vmap(lambda n: key_p.bind(key, n))(numbers).reshape(*examples, WORDS)
    # XLA would derive a key again for each of the numbers that it makes of it.
    return lax.optimization_barrier(key)


def first_key(seed: Array, replica: Array | int) -> Array:
    """The words that a replica's run starts from.

    Args:
      seed: uint32[4]: the device's seed (lower word first), the number of the run, and 1, or 0 to
        let all replicas draw the same numbers.
      replica: the replica's number.
    """
    run = key_of(seed[:2], seed[2])
    return key_of(run, seed[3] * jnp.asarray(replica, jnp.uint32))


def random_halves(key: Array, shape: Sequence[int]) -> Array:
    """Uniform random numbers of 16 bits, uint16, far cheaper than `jax.random.bits`.

    That makes two words for each number and throws all but 16 bits away.
    """
    words, algorithm = jax.random.key_data(key), jax.random.key_impl(key)
    return halves_p.bind(words, shape=tuple(shape), algorithm=algorithm)


def _draw_aval(*_: ShapedArray, examples: tuple[int, ...]) -> ShapedArray:
    return ShapedArray((*examples, WORDS), jnp.uint32.dtype)


def _refused(*_: Array, **params: object) -> Array:
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


def _draw_remat(_: Any, unknown: Sequence[bool], there: Sequence[bool], eqn: JaxprEqn) -> Any:
    """`jax.checkpoint` keeps the words, whatever its policy says."""
    if not any(unknown):
        return eqn, None, [False], [False], []
    missing = [v for v, is_there in zip(eqn.invars, there, strict=True) if not is_there]
    return None, eqn, [True], [True], missing


def _fold(words: Array, number: Array) -> Array:
    if words.ndim > 1:
        return jax.vmap(_fold)(words, number)
    return jax.random.key_data(jax.random.fold_in(as_key(words), number))


def _key_aval(words: ShapedArray, _: ShapedArray) -> ShapedArray:
    return ShapedArray(words.shape, jnp.uint32.dtype)


def _halves(words: Array, *, shape: tuple[int, ...], algorithm: Any) -> Array:
    if words.ndim > 1:
        return jax.vmap(functools.partial(_halves, shape=shape, algorithm=algorithm))(words)
    size = math.prod(shape)
    if algorithm == ALGORITHM:
        counters = lax.iota(jnp.uint32, 2 * -(-size // 4))
        drawn = threefry_2x32(words, counters)
    else:
        key = jax.random.wrap_key_data(words, impl=algorithm)
        drawn = jax.random.bits(key, (-(-size // 2),), jnp.uint32)
    halves = jnp.concatenate([drawn & 0xFFFF, drawn >> 16]).astype(jnp.uint16)
    return halves[:size].reshape(shape)


def _halves_aval(words: ShapedArray, *, shape: tuple[int, ...], **_: object) -> ShapedArray:
    return ShapedArray((*words.shape[:-1], *shape), jnp.uint16.dtype)


draw_p = define("ipu_draw", _draw_aval, _refused, jvp=constant, vmap=_draw_vmap)
partial_eval.partial_eval_jaxpr_custom_rules[draw_p] = _draw_remat
# One operation each, whatever they are on a CPU: a tile of an IPU has a generator of its own.
key_p = define("ipu_draw_key", _key_aval, _fold, vmap=leading)
halves_p = define("ipu_random_halves", _halves_aval, _halves, vmap=leading)


def is_draw(eqn: JaxprEqn) -> bool:
    """Whether an equation draws."""
    return eqn.primitive is draw_p
