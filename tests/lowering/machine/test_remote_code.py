"""Code of transfers with streaming memory: an exchange each, or one for all buffers of a shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from lowering.machine import ModelOptions, Profile, model
from lowering.machine.kernels.code import (
    BYTES_PER_CALL,
    BYTES_PER_PHASE,
)
from lowering.machine.transfers import Pieces
from lowering.ops import Storage, bring_from_storage, move_to_storage
from tests.lowering.samples import lowered

TILES = 1472
BIG = jax.ShapeDtypeStruct((TILES * 64,), jnp.float32)  # 256 bytes on each tile
SMALL = jax.ShapeDtypeStruct((TILES * 16,), jnp.float32)
REMOTE = Storage(remote=True)


def updated(*kept):
    """Each array is loaded, worked on and stored."""
    kept = [move_to_storage(each, REMOTE) for each in kept]
    kept = [move_to_storage(bring_from_storage(each, REMOTE) * 2, REMOTE) for each in kept]
    return [bring_from_storage(each, REMOTE) for each in kept]


def code(found: Profile) -> tuple[int, int]:
    tiles = found.memory.tile_categories
    return int(tiles["exchange_code"][0, 0]), int(tiles["control_code"][0, 0])


def profile(arrays, **options) -> Profile:
    program = lowered(updated, *arrays, ipus=1, minimum_remote_bytes=0)
    return model(program, ModelOptions(**options))


@pytest.mark.parametrize("merges", [True, False])
def test_buffers_of_one_shape_share_code(merges):
    """A load and a store of each array; what comes and goes with the call has no code."""
    one, three = (profile([BIG] * n + [SMALL], merges_remote=merges) for n in (1, 3))
    kernels = [code(model(lowered(mapped, *[BIG] * n, SMALL, ipus=1))) for n in (1, 3)]
    exchange = Pieces(1, 1, 1).code_bytes()  # 256 bytes go in one packet
    grown = [b - a for a, b in zip(code(one), code(three), strict=True)]
    own = [b - a for a, b in zip(*kernels, strict=True)]
    others = 0 if merges else 2 * 2  # loads and stores of two more arrays
    calls = 2 * 2 * BYTES_PER_CALL
    assert grown[0] - own[0] == others * exchange
    assert grown[1] - own[1] == others * BYTES_PER_PHASE + calls


def mapped(*arrays):
    return [each * 2 for each in arrays]


def test_code_that_is_not_outlined_is_not_shared_either():
    arrays = [BIG, BIG]
    apart, merged = (
        code(profile(arrays, outlines=False, merges_remote=merges)) for merges in (False, True)
    )
    assert apart == merged
