"""Code on the tiles: once for every kind of vertex, and for every call a little."""

from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
import numpy as np

from lowering.machine import CATEGORIES, Phase, Vertices
from lowering.machine.kernels import CodeUse, code, compute_code_bytes
from lowering.machine.transfers import Pieces
from tests.lowering.machine.samples import BYTES, TILES, A, M, homes, kernel, profile
from tests.lowering.samples import lowered, shard

ADD = Vertices("popops::Add<float>", 2, 3)
WIDE_ADD = Vertices("popops::Add<float>", 1, 5)
MUL = Vertices("popops::Mul<float>", 1, 4)


def per_tile(*uses: CodeUse, calls: int = 0) -> dict[str, list[int]]:
    return {name: found.tolist() for name, found in compute_code_bytes(uses, calls, 6).items()}


def test_nothing_but_a_stack():
    found = per_tile()
    assert set(found) < set(CATEGORIES)
    assert found.pop("stack") == [code.STACK_BYTES] * 6
    assert not any(map(any, found.values()))


def test_code_is_there_once_and_state_for_each_vertex():
    found = per_tile(
        CodeUse((ADD, MUL), phases=1),
        CodeUse((WIDE_ADD,), phases=1),
    )
    kind, state = code.BYTES_PER_VERTEX_KIND, code.BYTES_PER_VERTEX
    assert found["vertex_code"] == [2 * kind] * 4 + [kind, 0]  # Add on five tiles, Mul on four
    assert found["vertex_state"] == [4 * state] * 3 + [2 * state, state, 0]


def test_convolutions_take_the_instructions_of_their_assembly():
    vertices = Vertices("poplin::ConvPartialnx1<half,half,true,false,16,4>", 1, 2)
    found = per_tile(CodeUse((vertices,), phases=1))["vertex_code"]
    assert found == [4 * 729] * 2 + [0] * 4


def test_calls_phases_and_exchanges():
    use = CodeUse((), phases=3, exchanges=(Phase("a", 0.0, 240.0), Phase("b", 0.0, 128.0)))
    want = 3 * code.BYTES_PER_PHASE + code.BYTES_PER_CALL
    assert per_tile(use, calls=1)["control_code"] == [want] * 6
    again = use.add_uses(use)
    want = 3 * code.BYTES_PER_PHASE + 2 * code.BYTES_PER_CALL
    assert per_tile(again, calls=2)["control_code"] == [want] * 6
    # Two exchanges of three words and as much for each of the three pieces of 128 bytes.
    want = 4 * (2 * 3 + 3 * 3)
    assert per_tile(use)["exchange_code"] == per_tile(again)["exchange_code"] == [want] * 6


def test_outlined_functions_have_their_code_once_without_outlining():
    use = CodeUse((), phases=3)
    block = dc.replace(use, blocks=frozenset({("block", False)}), alone=0, entered=1)
    backward = dc.replace(block, blocks=frozenset({("block", True)}), entered=0)
    phases, call = 3 * code.BYTES_PER_PHASE, code.BYTES_PER_CALL
    for uses, want in (
        ([use, use], 2 * phases),
        ([block, block, block], phases + 3 * call),
        ([block, backward, block], 2 * phases + 2 * call),
        ([use, block, block], 2 * phases + 2 * call),
    ):
        first, *others = uses
        for other in others:
            first = first.add_uses(other)
        found = code.compute_code_bytes([first], 0, 6, outlines=False)
        assert found["control_code"].tolist() == [want] * 6


def test_equal_exchanges_share_code_unless_they_send_other_variables():
    """As in PopART's profile of BERT, whose later layers have a third of the first one's."""
    exchanges = (Phase("Convolve", 1.0, 128.0), Phase("Reduce", 1.0, 128.0))
    word, inner = 4 * (3 + 3), CodeUse((), phases=2, exchanges=exchanges)
    weights = dc.replace(inner, from_outside=1)
    for uses, want in (([inner, inner], 2), ([weights, inner, weights], 3), ([weights] * 4, 5)):
        first, *others = uses
        for other in others:
            first = first.add_uses(other)
        found = code.compute_code_bytes([first], 0, 6, outlines=False)
        assert found["exchange_code"].tolist() == [want * word] * 6
        assert per_tile(first)["exchange_code"] == [2 * word] * 6


def test_kernels_know_what_lies_outside_of_them():
    def layers(x: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
        inner = jnp.sin(x)
        return ((inner @ v) @ w) @ inner

    (products,) = (use for use in kernel(layers, *[M] * 3).code.values() if use.exchanges)
    assert (products.alone, products.from_outside) == (3, 2)


def test_what_few_tiles_receive_is_code_of_theirs():
    """Each of two tiles takes ten pieces, at one address, of what all send."""
    phase = Phase("Reduce", 0.0, 320.0, receivers=2, pieces=Pieces(10, 1, 1))
    use = CodeUse((), phases=1, exchanges=(phase,))
    sends = 4 * (3 + 1)
    assert per_tile(use)["exchange_code"] == [sends + 4 * (10 + 1)] * 2 + [sends] * 4


def test_code_is_where_its_operation_is():
    """Two operations of three tiles each, of one kind; the second begins where the first ends."""
    small = Vertices("Add", 2, 3)
    first = CodeUse((small,), phases=1)
    wrapped = dc.replace(first, first_tile=5)
    kind, state = code.BYTES_PER_VERTEX_KIND, 2 * code.BYTES_PER_VERTEX
    found = per_tile(first, wrapped)
    assert found["vertex_code"] == [kind, kind, kind, 0, 0, kind]
    assert found["vertex_state"] == [2 * state, 2 * state, state, 0, 0, state]


def test_small_operations_do_not_pile_up_on_tile_0():
    """Scalars lie on one tile after the other, and so does the code of what makes them."""

    def fn(x):
        sums = [jnp.sum(x[: 64 * (i + 1)]) for i in range(TILES)]
        return [jnp.float32(i + 2) ** total for i, total in enumerate(sums)]

    bytes_ = profile(fn, A).memory.tile_categories
    state = bytes_["vertex_state"][0]
    assert state.max() <= 1.5 * np.median(state)


# --- programs -------------------------------------------------------------------------------------


def layers(count: int, ipus: int = 1):
    def fn(w, x):
        for i in range(count):
            with shard(i % ipus):
                x = jnp.tanh(x @ w)
        return x

    return fn


def counted(fn, *args, **options):
    found = profile(fn, *args, **options).memory.by_category
    kinds = ("vertex_code", "vertex_state", "control_code", "exchange_code", "stack")
    return {kind: found[kind] for kind in kinds}


def test_nobody_knows_the_size_of_what_is_not_compiled():
    compiled = counted(layers(1), M, M)
    assert all(compiled.values())
    assert not any(counted(layers(1), M, M, compiles_code=False).values())


def test_equal_operations_are_outlined():
    """Two layers in one kernel: only calls, and what brings the second's operands, are new."""

    def fn(count):
        def run(x):
            for _ in range(count):
                x = jnp.cumsum(x)
            return x

        return run

    one, ten = counted(fn(1), A), counted(fn(10), A)
    assert ten.pop("control_code") - one.pop("control_code") == 9 * TILES * code.BYTES_PER_CALL
    assert one == ten


def test_equal_kernels_are_outlined():
    """Layers that alternate between IPUs: each IPU has the code of one."""
    two, eight = counted(layers(4, 2), M, M, ipus=2), counted(layers(12, 2), M, M, ipus=2)
    assert two["vertex_code"] == eight["vertex_code"]
    assert two["vertex_state"] == eight["vertex_state"]
    assert two["control_code"] < eight["control_code"]


def test_every_ipu_has_its_own():
    alone = counted(layers(1), M, M)
    on_two = counted(layers(2, 2), M, M, ipus=2)
    assert on_two["stack"] == 2 * alone["stack"]
    assert on_two["vertex_code"] >= 2 * alone["vertex_code"]


def test_trips_need_no_code():
    def fn(trips):
        return lambda x: jax.lax.fori_loop(0, trips, lambda _, c: jnp.sin(c), x)

    assert counted(fn(2), A) == counted(fn(2000), A)


def test_code_is_there_always():
    memory = profile(jnp.sin, A).memory
    total = sum(counted(jnp.sin, A).values())
    (home,) = homes(lowered(jnp.sin, A, ipus=1))
    assert memory.always_live_bytes.tolist() == [total + BYTES]
    extra = memory.tile_peak_bytes[0] - home.alive.tile_peak_bytes - BYTES // TILES
    assert (extra >= code.STACK_BYTES).all()
    assert extra.sum() == total


def test_compute_sets_are_supersteps_that_compute():
    """A product computes and reduces in it; what is outlined is there once, on each IPU."""
    one, ten = (profile(layers(count), M, M).graph for count in (1, 10))
    assert one is not None
    assert ten is not None
    assert one.compute_sets == sum(
        step.kind == "compute" for step in profile(layers(1), M, M).steps
    )
    assert sum(ten.vertices.values()) < 10 * sum(one.vertices.values())
    on_two = profile(layers(2, 2), M, M, ipus=2).graph
    assert on_two is not None
    assert on_two.compute_sets >= 2 * one.compute_sets
