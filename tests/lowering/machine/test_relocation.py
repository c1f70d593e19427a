"""A kernel that was modelled with stand-ins costs what it costs with the tiles themselves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.machine import IPU2, PlanOptions, map_linearly
from lowering.machine.kernels.fusing import fuse_elementwise_chains
from lowering.machine.kernels.kernel_cost import model_kernel
from lowering.machine.kernels.layouts import TensorLayout
from lowering.machine.kernels.listing import list_operations
from lowering.machine.kernels.relocation import replace_stand_ins, use_stand_ins
from lowering.machine.primitives import ELEMENTWISE
from lowering.machine.transfers.between_replicas import Collectives


def kernel(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    z = jnp.sin(x) + x
    return jax.lax.fori_loop(0, 3, lambda _, v: jnp.sort(v) * 2, z), jnp.cos(y)


def test_costs_are_those_of_the_tiles():
    avals = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (640, 320)]
    closed = jax.make_jaxpr(kernel)(*avals)
    listing = fuse_elementwise_chains(
        list_operations(closed, PlanOptions()), ELEMENTWISE.__contains__
    )
    collectives = Collectives(target=IPU2)
    tiles = IPU2.tiles_per_ipu
    operands = [
        TensorLayout(map_linearly(aval.size, 4, tiles).start_at_tile(first))
        for aval, first in zip(avals, (700, 1_465), strict=True)
    ]
    want = model_kernel(listing, operands, IPU2, collectives)
    stand_in = model_kernel(listing, use_stand_ins(operands), IPU2, collectives)
    got = replace_stand_ins(stand_in, operands)
    assert (got.operands, got.results) == (want.operands, want.results)
    code = {key: use.for_operands(got.operand_tiles) for key, use in got.code.items()}
    assert code == want.code
    assert {layout.mapping.first_tile for layout in got.results} <= {0, 700, 1_465}
    assert got.cycles == want.cycles
    records = [
        cost.life.liveness_with_donated(frozenset({0}), operand_tiles=cost.operand_tiles)[0]
        for cost in (got, want)
    ]
    np.testing.assert_array_equal(records[0].tile_peak_bytes, records[1].tile_peak_bytes)
    assert records[0].tensors == records[1].tensors
