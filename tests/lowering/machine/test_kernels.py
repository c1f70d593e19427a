"""Kernels on a chip of 16 tiles: cycles and memory that can be counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering.machine import Phase, Steps, map_linearly
from lowering.machine.kernels import Supersteps, TensorLayout, Walk, cost_of_item
from tests.lowering.machine.samples import (
    BYTES,
    CHIP,
    EXCHANGE,
    SYNC,
    TILES,
    A,
    M,
    alive,
    at_worst,
    end,
    kernel,
    listed,
    overlaps,
)
from tests.lowering.samples import N

ROWS = jax.ShapeDtypeStruct((8, 1024), jnp.float32)


def steps(cost):
    return [(step.kind, step.name, step.cycles) for step in Steps(cost.trace)]


def exchanged(cost):
    return [step.cycles for step in Steps(cost.trace) if step.kind == "exchange"]


def layer(x, w):
    return jnp.tanh(x @ w + 1).sum(0)


def nested(x, w):
    def outer(c, row):
        def inner(d, _):
            return jnp.sin(d @ w) + row, d.sum()

        c, sums = lax.scan(inner, c, None, length=3)
        c = lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, c)
        return lax.cond(sums[0] > 0, jnp.sin, lambda c: c @ w, c), c

    return lax.scan(outer, x, jnp.arange(5.0))


def sliced(x):
    return lax.scan(lambda c, row: (c + row, c * row), x[0], x)


FUNCTIONS = {
    "layer": (layer, M, M),
    "nested": (nested, M, M),
    "sliced": (sliced, M),
    "literal": (lambda x: (x + 1, 2.0, x.T, x, x), M),
    "sort": (lambda x: jnp.sort(x + x.T)[:10], M),
    "nothing": (lambda: (),),
    "no part": (jnp.unstack, jax.ShapeDtypeStruct((0, 4), jnp.float32)),
    "grad": (jax.grad(lambda x, w: layer(x, w).sum()), M, M),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_cycles_are_what_the_trace_says(name):
    """An IPU does one thing after the other, without a gap, and every cycle has a title."""
    cost = kernel(*FUNCTIONS[name])
    found = Steps(cost.trace)
    assert cost.cycles == end(found) == sum(step.cycles for step in found)
    assert not overlaps(found)
    assert sum(total.cycles for total in cost.totals.values()) == cost.cycles
    spent = {
        kind: sum(s.cycles for s in found if s.kind == kind) for kind in ("compute", "exchange")
    }
    totals = cost.totals.values()
    assert sum(total.compute_cycles for total in totals) == spent["compute"]
    assert sum(total.exchange_cycles for total in totals) == spent["exchange"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_memory_is_never_negative(name):
    cost = kernel(*FUNCTIONS[name])
    for away in ((), (0,)):
        if len(cost.operands) < len(away):
            continue
        found, in_place = cost.life.liveness_with_donated(frozenset(away))
        assert (found.tile_peak_bytes >= 0).all()
        assert found.peak_bytes_of_all_tiles >= 0
        worst = at_worst(found)
        assert worst.activation_bytes + worst.temporary_bytes == found.peak_bytes_of_all_tiles
        assert found.peak_bytes_of_all_tiles <= found.tile_peak_bytes.sum()
        given_away = [operand for operand in in_place if operand is not None]
        assert len(set(given_away)) == len(given_away)


def test_phases_become_supersteps():
    steps_ = Supersteps(CHIP)
    steps_.run_phases("op", "f.py:1", [Phase("a", 10.2), Phase("b", 5, 400), Phase("c")])
    waiting = EXCHANGE + 100  # 400 bytes at 4 per cycle
    assert [(s.kind, s.name, s.start_cycle, s.cycles) for s in Steps(steps_.build_trace())] == [
        ("sync", "op/a", 0, 100),
        ("compute", "op/a", 100, 11),
        ("sync", "op/b", 111, 100),
        ("exchange", "op/b", 211, waiting),
        ("compute", "op/b", 211 + waiting, 5),
        ("sync", "op/c", 216 + waiting, 100),
    ]
    assert (steps_.clock, steps_.compute, steps_.exchange) == (316 + waiting, 16, waiting)


def test_an_exchange_that_is_laid_out_by_hand_is_only_the_targets():
    """Hand-written stencils measured no more: 100 cycles, and 400 bytes at 4 per cycle."""
    steps_ = Supersteps(CHIP)
    steps_.run_phases("op", "f.py:1", [Phase("a", 10, 400, is_by_hand=True)])
    assert (steps_.clock, steps_.exchange) == (310, 200)


def test_repeats_are_a_loop():
    steps_ = Supersteps(CHIP)
    steps_.run_phases("op", "f.py:1", [Phase("a", 10, 400)], 7)
    assert steps_.build_trace().num_steps == 21
    assert (steps_.clock, steps_.compute, steps_.exchange) == (7 * 586, 70, 7 * 476)


def test_one_operation():
    """64 elements on a tile, 11 for each worker: 17 and 6 vectors of 2 at 10 cycles."""
    cost = kernel(jnp.sqrt, A)
    (phase,) = cost_of_item(listed(jnp.sqrt, A).items[0].operations, CHIP).phases  # pyright: ignore
    assert phase.compute == 6 * (17 + 6 * 10) + 20
    assert steps(cost) == [("sync", "sqrt/Sqrt", SYNC), ("compute", "sqrt/Sqrt", 482)]


# --- rearrangement --------------------------------------------------------------------------------


def test_alike_tensors_are_not_rearranged():
    assert not exchanged(kernel(lambda x, y: x + y, M, M))
    assert not exchanged(kernel(lambda x, y: x.T + y.T, M, M))
    assert not exchanged(kernel(lambda x, y: x.T.T + y, M, M))
    assert not exchanged(kernel(lambda x, y: x.ravel() + y.ravel(), M, M))


def test_a_transposed_operand_is_rearranged():
    """A tile gets its share of one operand: 256 elements of 4 bytes, at 4 bytes per cycle."""
    want = [EXCHANGE + 256]
    assert exchanged(kernel(lambda x, y: x.T + y, M, M)) == want
    assert exchanged(kernel(lambda x: x + x.T, M)) == want
    half = M.update(dtype=jnp.float16)
    assert exchanged(kernel(lambda x, y: x.T + y, half, half)) == [EXCHANGE + 128]


def test_a_small_operand_goes_to_every_tile():
    row = jax.ShapeDtypeStruct((64,), jnp.float32)
    cost = kernel(lambda x, b: x + b[:, None] * 1.0, M, row)
    assert all(cycles <= EXCHANGE + 64 for cycles in exchanged(cost))


def test_products_get_their_operands_as_they_want_them():
    """Arguments that a product reads first are laid out for it, also behind a transposition."""
    cost = kernel(jnp.matmul, M, M)
    assert not [name for _, name, _ in steps(cost) if "rearrange" in name]
    assert {laid.mapping.layout for laid in cost.operands} != {"linear"}
    turned = kernel(lambda x, w: x.T @ w, M, M)
    assert not [name for _, name, _ in steps(turned) if "rearrange" in name]
    given = [TensorLayout(map_linearly(64 * 64, 4, TILES)) for _ in range(2)]
    late = kernel(jnp.matmul, M, M, given=given)
    assert [name for _, name, _ in steps(late) if "rearrange" in name]
    assert late.operands == tuple(given)
    assert late.cycles > cost.cycles


def test_results_lie_as_operands_do():
    cost = kernel(lambda x, y: (x.T + y.T, x * 2), M, M)
    assert cost.results[0].order_key == ("linear", (Walk(4096, 0, ((64, 1), (64, 64))),))
    assert cost.results[1].order_key == ("linear", ())


# --- memory ---------------------------------------------------------------------------------------


def test_a_result_needs_memory_of_its_own():
    assert alive(jnp.sin, A).most_bytes == BYTES
    found = alive(jnp.sin, A)
    np.testing.assert_array_equal(found.tile_peak_bytes, [BYTES // TILES] * TILES)
    assert [(t.name, t.operation) for t in found.tensors] == [("float32[1024]", "sin")]


def test_a_result_takes_what_is_given_away():
    cost = kernel(jnp.sin, A)
    assert cost.life.liveness_with_donated(frozenset({0}))[0].peak_bytes_of_all_tiles == 0
    assert cost.life.liveness_with_donated(frozenset({0}))[1] == (0,)
    assert cost.life.liveness_with_donated(frozenset())[1] == (None,)


def test_another_type_or_size_takes_nothing():
    assert alive(lambda x: x.astype(jnp.float16), A, away=[0]).most_bytes == BYTES // 2
    assert alive(lambda x: x > 0, A, away=[0]).most_bytes == BYTES // 4
    assert kernel(lambda x: x.sum(), A).life.liveness_with_donated(frozenset({0}))[1] == (None,)


def test_inner_values_die():
    def fn(x):
        a = jnp.sin(x)
        b = a * a  # takes a's memory
        c = b + b  # and b's
        return c * c

    assert alive(fn, A).most_bytes == BYTES

    def both(x):
        a = jnp.sin(x)
        b = a * a  # a is needed once more
        return a + b, b

    assert alive(both, A).most_bytes == 2 * BYTES


def test_what_is_needed_outside_is_not_written_over():
    """The operand is read here for the last time, but somebody else may need it."""

    def fn(x):
        a = jnp.sin(x)
        return (a * a).sum()

    assert alive(fn, A).activation_bytes == BYTES + 4
    assert alive(fn, A, away=[0]).activation_bytes == 4


def test_results_that_are_operands():
    alive_, in_place = kernel(lambda x: (x, x), A).life.liveness_with_donated(frozenset())
    assert in_place == (0, None)  # the second needs memory of its own
    assert alive_.peak_bytes_of_all_tiles == BYTES
    _, in_place = kernel(lambda x, y: (y, x + 0 * y), A, A).life.liveness_with_donated(
        frozenset({0, 1})
    )
    assert in_place == (1, 0)


def test_literals_and_parts_become_tensors():
    cost = kernel(lambda x: (2.0, x[0], x[:512]), A)
    alive_, in_place = cost.life.liveness_with_donated(frozenset({0}))
    assert in_place == (None, None, None)
    assert alive_.peak_bytes_of_all_tiles == 4 + 4 + 2048


def test_views_need_nothing():
    def fn(x):
        return x.reshape(32, 32).T[::-1].sum()

    assert max(t.laid.mapping.total_bytes for t in alive(fn, A).tensors) < BYTES


def test_work_space_is_there_while_it_is_needed():
    listing = listed(jnp.matmul, M, M)
    cost = cost_of_item(listing.items[0].operations, CHIP)  # pyright: ignore
    found = alive(jnp.matmul, M, M)
    used = max(laid.mapping.used for laid in kernel(jnp.matmul, M, M).results)
    assert found.temporary_bytes == round(cost.temporary_bytes) * used
    assert found.activation_bytes == 64 * 64 * 4


def test_work_space_lies_on_all_tiles_that_compute():
    x, w = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((2, 4096), (4096, 8)))
    cost = cost_of_item(listed(jnp.matmul, x, w).items[0].operations, CHIP)  # pyright: ignore
    (result,) = kernel(jnp.matmul, x, w).results
    assert (result.mapping.used, cost.vertices[0].tiles) == (8, TILES)
    assert alive(jnp.matmul, x, w).temporary_bytes == round(cost.temporary_bytes) * TILES


# --- loops ----------------------------------------------------------------------------------------


def repeated(trips):
    return lambda x, w: lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=trips)[0]


def test_trips_multiply_cycles_and_not_code():
    few, many = kernel(repeated(3), M, M), kernel(repeated(3000), M, M)
    assert many.cycles == 1000 * few.cycles
    assert few.code == many.code
    assert (
        few.life.liveness_with_donated(frozenset())[0].peak_bytes_of_all_tiles
        == many.life.liveness_with_donated(frozenset())[0].peak_bytes_of_all_tiles
    )
    for title, total in few.totals.items():
        assert many.totals[title].runs == 1000 * total.runs
        assert many.totals[title].flops == 1000 * total.flops


def test_a_loop_is_its_body_again_and_again():
    def body(c, w):
        return jnp.exp(c) * w

    loop = kernel(lambda x, w: lax.fori_loop(0, 7, lambda _, c: body(c, w), x), A, A)
    counter = kernel(lambda i: i + 1, N)
    assert loop.cycles == 7 * (kernel(body, A, A).cycles + counter.cycles)


@pytest.mark.parametrize("trips", [0, 1])
def test_loops_that_hardly_run(trips):
    cost = kernel(repeated(trips), M, M)
    assert (cost.cycles > 0) == bool(trips)


def test_unknown_trips_are_an_assumption():
    def dynamic(x, n):
        return lax.fori_loop(0, n, lambda _, c: jnp.sin(c) * c, x)

    cost = kernel(dynamic, A, N)
    (said,) = cost.assumptions
    assert "test_kernels.py" in said
    assert "only values tell how often it runs" in said
    assert not kernel(repeated(3), M, M).assumptions

    def inside(x, n):
        return lax.scan(lambda c, _: (dynamic(c, n), None), x, None, length=4)[0]

    assert len(kernel(inside, A, N).assumptions) == 1


def test_a_loop_variable_is_one_buffer():
    def fn(x):
        return lax.fori_loop(0, 9, lambda _, c: c * 2, x)

    assert alive(fn, A, away=[0]).most_bytes < 64  # the counter
    kept = alive(fn, A).most_bytes
    assert BYTES <= kept < BYTES + 64


def test_a_variable_that_begins_as_a_literal_has_all_its_elements():
    """Zeros are a scalar, repeated; the sum over iterations is a tensor."""

    def fn(x):
        return lax.fori_loop(0, 9, lambda _, c: c + x, jnp.zeros(1024))

    assert BYTES <= alive(fn, A).most_bytes < BYTES + 64
    (laid,) = kernel(fn, A).results
    assert laid.mapping.elements == 1024


def test_what_the_body_reads_is_not_written_over():
    def fn(x):
        return lax.fori_loop(0, 9, lambda _, c: c * x, x)

    assert BYTES <= alive(fn, A, away=[0]).most_bytes < BYTES + 64


def test_two_variables_that_begin_alike_are_two_buffers():
    def fn(x):
        return lax.fori_loop(0, 9, lambda _, c: (c[0] * 2, c[1] * 3), (x, x))

    assert BYTES <= alive(fn, A, away=[0]).most_bytes < BYTES + 64
    assert 2 * BYTES <= alive(fn, A).most_bytes < 2 * BYTES + 64


def test_slices_and_stacks():
    """Beside eight rows of operands: eight rows of results, a row, the variable, and c * row."""
    cost = kernel(lambda x, xs: lax.scan(lambda c, r: (jnp.sin(c), c * r), x, xs), A, ROWS)
    found = at_worst(cost.life.liveness_with_donated(frozenset())[0])
    rows = sorted(t.name for t in found.tensors)
    assert rows[-1] == "float32[8,1024]"
    # While c * r is computed, sin(c) may not be in c's place yet.
    assert len(rows) in (3, 4)
    assert found.most_bytes == (8 + len(rows) - 1) * BYTES
    # Each iteration reads one row and writes one, 64 elements of each tile or 8 rows / 8.
    moves = [step for step in Steps(cost.trace) if step.name == "scan/slices"]
    assert len(moves) == 3 * 8
    assert {step.cycles for step in moves if step.kind == "exchange"} == {EXCHANGE + 128}
    assert {step.cycles for step in moves if step.kind == "compute"} == {64}


def test_plain_loops_move_no_slices():
    cost = kernel(lambda x, w: lax.fori_loop(0, 3, lambda _, c: jnp.exp(c) * w, x), M, M)
    assert not [name for _, name, _ in steps(cost) if "slices" in name]
    # A product leaves its result as its plan likes; the variable lies as it began.
    assert [name for _, name, _ in steps(kernel(repeated(3), M, M)) if "slices" in name]


def test_bodies_with_constants():
    """The constant is neither an operand nor made by anything, and is never written over."""
    table = np.arange(1024.0, dtype=np.float32)
    inner = jax.jit(lambda c: (c + jnp.asarray(table)) * 2)
    closed = jax.make_jaxpr(inner)(A)
    calls = [eqn.params["jaxpr"] for eqn in closed.jaxpr.eqns]
    assert calls

    def fn(x):
        return lax.fori_loop(0, 3, lambda _, c: jnp.cumsum(inner(c)) + jnp.asarray(table), x)

    found = alive(fn, A, away=[0])
    assert found.activation_bytes >= 0
    assert kernel(fn, A).cycles > 0


# --- branches -------------------------------------------------------------------------------------


def branched(n, x):
    return lax.switch(n, [jnp.exp, lambda a: jnp.cumsum(a, 0), lambda a: a], x)


def test_the_slowest_branch_counts():
    found = kernel(branched, N, M)
    slow = kernel(lambda a: jnp.cumsum(a, 0), M)
    assert slow.cycles > kernel(jnp.exp, M).cycles
    clamp = kernel(lambda n: lax.clamp(0, n, 2), N)
    assert found.cycles == slow.cycles + clamp.cycles
    titles = [total.title for total in found.totals.values()]
    assert not [title for title in titles if title.startswith("exp")]
    assert [title for title in titles if title.startswith("cumsum")]


def test_all_branches_have_code():
    found = kernel(branched, N, M)
    kinds = {vertices.kind for use in found.code.values() for vertices in use.vertices}
    assert any("Exp" in kind for kind in kinds)
    assert any("Cumsum" in kind for kind in kinds)


def test_calls_of_branches_add_up():
    def fn(n, x):
        y = jnp.sin(x)
        return lax.cond(n > 0, lambda a: jnp.sin(a), lambda a: a, y)

    found = kernel(fn, N, A)
    (sine,) = (key for key, use in found.code.items() if "Sin" in str(use.vertices))
    assert found.calls.count(sine) == 2


def test_a_branchs_result_is_counted_once():
    def fn(n, x):
        return lax.cond(n > 0, jnp.sin, jnp.cos, x)

    found = alive(fn, N, A)
    assert BYTES <= found.most_bytes < BYTES + 64


def test_state_lies_as_the_gradient_that_it_meets():
    """So a momentum is updated where it is, and nothing is rearranged for it."""

    def fn(x, w, momentum):
        gradient = jax.grad(lambda w: jnp.sin(x @ w).sum())(w)
        return momentum * 0.9 + gradient

    x, w = jnp.zeros((32, 64)), jnp.zeros((64, 128))
    cost = kernel(fn, x, w, w)
    assert cost.operands[2].order_key == cost.results[0].order_key
    assert cost.operands[2].mapping.layout != "linear"
    _, in_place = cost.life.liveness_with_donated(frozenset([2]))
    assert in_place == (2,)
