"""What tests of checkpoints share: both kinds of files, trees of every kind of leaf, bits."""

from __future__ import annotations

import dataclasses as dc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

from ipujax.checkpoints import with_orbax

KINDS = ("npz", "orbax")

NUMPY = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
OF_JAX = (
    *("bfloat16", "int2", "int4", "uint2", "uint4", "float4_e2m1fn", "float8_e3m4"),
    *("float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)


def use(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has new checkpoints be of a kind."""
    if kind == "orbax":
        pytest.importorskip("orbax.checkpoint")
    monkeypatch.setattr(with_orbax, "is_installed", lambda: kind == "orbax")


class Pair(NamedTuple):
    first: Any
    second: Any


@jax.tree_util.register_dataclass
@dc.dataclass(frozen=True)
class State:
    variables: Any
    rest: Any = None
    step: int = 0


def array(dtype: str, shape: tuple[int, ...] = (2, 3)) -> np.ndarray:
    """Small numbers of a dtype."""
    kind = np.dtype(dtype if dtype in NUMPY else getattr(ml_dtypes, dtype))
    return np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(kind)


def state() -> State:
    """A bit of everything that a training keeps."""
    variables = {
        "dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.zeros(3, jnp.bfloat16)},
        "blocks": [jnp.ones(2), Pair(jnp.int8(3), None)],
        "none": None,
        "empty": {},
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.constant_schedule(1)))
    rest = {
        "optimizer": optimizer.init(variables["dense"]),
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(1, impl="rbg"), 3),
        "nothing": jnp.zeros((0, 4)),
        "numpy": np.float64(0.1),
        "rate": 0.5,
    }
    return State(variables, rest, step=12)


def bits(leaf: Any) -> Any:
    """What is equal if, and only if, two leaves are."""
    if type(leaf) in (bool, int, float, complex):
        return type(leaf), leaf
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    numbers = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return str(leaf.dtype), leaf.shape, numbers.tobytes()


def same(got: Any, wanted: Any) -> None:
    """Fails unless two trees are equal to the last bit, in their structure too."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert bits(one) == bits(other)
