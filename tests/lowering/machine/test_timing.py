"""When each IPU does what, against times put together by hand."""

from __future__ import annotations

import collections
import dataclasses as dc
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lowering import ir, marks, ops, schedules
from lowering.jaxprs import constants_to_arguments, trace_flat
from lowering.machine import IPU2, KnownParts, ModelOptions, PlanOptions, model, trace
from lowering.machine.kernels import Listing, known_kernels
from lowering.machine.trace import Group, Loop, Tasks
from lowering.ops import Storage, bring_from_storage, cross_replica_sum, move_to_storage
from lowering.pipelines import TaskRole, TaskSpec, run_as_task
from tests.lowering.machine.samples import (
    BYTES,
    CHIP,
    EXCHANGE,
    A,
    M,
    end,
    kernel,
    modelled,
    overlaps,
    pipeline,
    profile,
)
from tests.lowering.machine.test_residency import PROGRAMS, on, repeated
from tests.lowering.samples import N, Queue, lowered, outside

CLOCK = 1.33e9
SYNC = 100 + 2 * math.ceil(15e-9 * CLOCK * 2)  # of two IPUs: there and back, twice
PAIR = 423.3e9 / 8 / 2  # bytes per second of two links, of a pair or along a rail
BETWEEN = 2066 + math.ceil(BYTES / (PAIR / CLOCK))  # A
HOST = 100 + math.ceil(BYTES / 32e9 * CLOCK)  # a sync of the tiles first
REMOTE = math.ceil(BYTES / 5e9 * CLOCK)

EXP = kernel(jnp.exp, A).cycles
SQRT = kernel(jnp.sqrt, A).cycles


def by_ipu(found, *kinds):
    """Name, start and cycles of each IPU's steps, syncs of its own tiles not among them."""
    steps = collections.defaultdict(list)
    for step in found.steps:
        if step.kind in kinds or not kinds:
            steps[step.ipu].append((step.name, step.start_cycle, step.cycles))
    return dict(steps)


def busy(found):
    return trace.count_busy_cycles(found.steps.trace, found.num_ipus).sum(axis=1)


# --- one step after the other ---------------------------------------------------------------------


def test_arguments_and_results_take_no_time():
    found = profile(jnp.exp, A)
    assert found.cycles == EXP
    assert profile(lambda x: x, A).cycles == 0
    assert profile(lambda: ()).cycles == 0
    assert found.seconds == EXP / CLOCK


def test_ipus_work_side_by_side():
    found = profile(lambda x, y: (on(0, jnp.exp, x), on(1, jnp.sqrt, y)), A, A, ipus=2)
    assert found.cycles == max(EXP, SQRT)
    assert busy(found).tolist() == [EXP, SQRT]


def test_a_copy_ties_two_ipus():
    """Both sync and copy at the same time, when the later one is free."""

    def fn(x, y):
        a = on(0, jnp.exp, x)
        b = on(1, jnp.sqrt, y)
        return on(1, lambda: a + b)

    found = profile(fn, A, A, ipus=2)
    ready = max(EXP, SQRT)
    copies = by_ipu(found, "inter_ipu")
    assert copies == {
        0: [("copy 0 -> 1", ready + SYNC, BETWEEN)],
        1: [("copy 0 -> 1", ready + SYNC, BETWEEN)],
    }
    assert ("copy 0 -> 1/sync", ready, SYNC) in by_ipu(found)[0]
    assert ("copy 0 -> 1/sync", ready, SYNC) in by_ipu(found)[1]
    add = kernel(lambda a, b: a + b, A, A).cycles
    assert found.cycles == ready + SYNC + BETWEEN + add
    assert not overlaps(found.steps)


def test_other_ipus_do_not_wait_for_a_copy():
    def fn(x):
        a = on(1, jnp.sqrt, on(0, jnp.sqrt, x))
        return a, on(2, lambda x: jnp.exp(jnp.cumsum(jnp.exp(x))), x)

    found = profile(fn, A, ipus=4)
    cycles = kernel(lambda x: jnp.exp(jnp.cumsum(jnp.exp(x))), A).cycles
    assert by_ipu(found)[2][0][1] == 0
    assert busy(found)[2] == cycles
    assert max(start + length for _, start, length in by_ipu(found)[2]) == cycles


def test_farther_ipus_take_longer():
    def cycles(target):
        def fn(x):
            return on(target, jnp.sqrt, on(0, jnp.sqrt, x)), on(3, jnp.exp, x)

        return profile(fn, A, ipus=4).cycles

    assert cycles(1) == cycles(2) < cycles(3)


def test_queues():
    queue, other = Queue("in"), Queue("out")

    def fn(x):
        (y,) = ops.dequeue(queue, [jax.typeof(jnp.zeros(1024, jnp.float32))])
        z = x * y
        ops.enqueue(other, [z, z], None)
        return z

    found = profile(fn, A)
    mul = kernel(lambda x, y: x * y, A, A).cycles
    assert by_ipu(found, "host") == {
        0: [
            ("stream-in in", 0, HOST),
            ("stream-out out", HOST + mul, 2 * HOST),  # each array by itself
        ]
    }
    assert found.cycles == end(found.steps)


def test_the_host_is_reached_by_copies():
    def fn(x):
        y = on(0, jnp.exp, x)
        with outside("h"):
            z = jnp.log(y)
        return on(1, jnp.sqrt, z)

    found = profile(fn, A, ipus=2)
    hosts = by_ipu(found, "host")
    assert hosts[0] == [("host copy", EXP, HOST)]
    assert [(name, cycles) for name, _, cycles in hosts[1]] == [("host copy", HOST)]
    assert hosts[1][0][1] == EXP + HOST  # it cannot come before it has gone
    (assumption,) = found.assumptions
    assert "takes no time" in assumption


def test_streaming_memory():
    remote = Storage(remote=True)

    def fn(x):
        return bring_from_storage(move_to_storage(jnp.exp(x), remote), remote) * 2

    found = profile(fn, A)
    assert by_ipu(found, "remote")[0] == [
        ("store to streaming memory", EXP, REMOTE),
        ("load from streaming memory", EXP + REMOTE, REMOTE),
    ]


def test_arguments_that_are_stored_take_no_time_to_get_there():
    remote = Storage(remote=True)

    def fn(w):
        (kept,) = repeated(
            lambda k: (move_to_storage(jnp.exp(bring_from_storage(k, remote)), remote),),
            move_to_storage(w, remote),
        )
        return bring_from_storage(kept, remote)

    assert profile(fn, A).cycles == 3 * (EXP + 2 * REMOTE)


# --- loops and branches ---------------------------------------------------------------------------


def looping(trips):
    def fn(x):
        def step(c, _):
            return on(1, jnp.sqrt, on(0, jnp.exp, c)), None

        return lax.scan(step, x, None, length=trips)[0]

    return fn


@pytest.mark.parametrize("trips", [1, 2, 1000])
def test_iterations_follow_each_other(trips):
    """The variable is on IPU 1: there and back, and both kernels."""
    found = profile(looping(trips), A, ipus=2)
    once = EXP + SQRT + 2 * (SYNC + BETWEEN)
    assert found.cycles == trips * once
    assert len(found.steps) == trips * len(profile(looping(1), A, ipus=2).steps)
    assert busy(found).tolist() == [
        trips * (EXP + 2 * (SYNC + BETWEEN)),
        trips * (SQRT + 2 * (SYNC + BETWEEN)),
    ]
    totals = {(op.ipu, op.name.split()[0]): op for op in found.operations}
    assert totals[0, "exp"].runs == trips
    assert totals[0, "exp"].cycles == trips * EXP


def test_slices_and_stacks_are_moved():
    """A row of 64 elements on each tile is read and one written, at 4 bytes per cycle."""
    rows = jax.ShapeDtypeStruct((5, 1024), jnp.float32)

    def fn(x, xs):
        def step(c, row):
            a = on(0, lambda: c + row)
            return on(1, lambda: jnp.exp(a)), a

        return lax.scan(step, x, xs)

    found = profile(fn, A, rows, ipus=2)
    moves = [s for s in found.steps if s.name.split("/")[0] in ("slice", "stack")]
    assert {(s.kind, s.cycles, s.ipu) for s in moves} == {
        ("sync", 100, 0),
        ("exchange", EXCHANGE + 64, 0),
    }
    assert len(moves) == 5 * 2 * 2
    totals = {operation.name: operation for operation in found.operations}
    assert totals["slice"].runs == totals["stack"].runs == 5
    assert totals["slice"].cycles == totals["stack"].cycles == 5 * 540


def test_loops_in_loops():
    def fn(x):
        return repeated(lambda c: (looping(5)(c),), x)

    assert profile(fn, A, ipus=2).cycles == 15 * profile(looping(1), A, ipus=2).cycles


def test_no_iterations():
    found = profile(looping(0), A, ipus=2)
    assert (found.cycles, len(found.steps)) == (0, 0)


def test_ipus_meet_before_and_after_a_loop():
    def fn(x):
        a = on(0, lambda: jnp.exp(jnp.cumsum(x)))
        return looping(2)(x), a

    found = profile(fn, A, ipus=2)
    before = kernel(lambda x: jnp.exp(jnp.cumsum(x)), A).cycles
    assert found.cycles == before + 2 * (EXP + SQRT + 2 * (SYNC + BETWEEN))


def test_trips_that_only_values_tell():
    def fn(x, n):
        def step(_, c):
            return on(1, jnp.sqrt, on(0, jnp.exp, c))

        return lax.fori_loop(0, n, step, x)

    found = profile(fn, A, N, ipus=2)
    (said,) = found.assumptions
    assert "test_timing.py" in said
    assert "taken as once" in said
    assert not profile(looping(3), A, ipus=2).assumptions


def branched(x, n):
    def slow(a):
        return on(1, jnp.sqrt, on(0, jnp.exp, a))

    return lax.switch(n, [lambda a: on(1, lambda a: a * 2, a), slow, lambda a: a], x)


def test_the_slowest_branch_sets_the_time():
    found = profile(branched, A, N, ipus=2)
    clamp = kernel(lambda n: lax.clamp(0, n, 2), N).cycles
    assert found.cycles >= EXP + SQRT + SYNC + BETWEEN
    assert found.cycles <= EXP + SQRT + 2 * (SYNC + BETWEEN) + 2 * clamp
    names = {op.name.split()[0] for op in found.operations}
    assert {"exp", "sqrt"} <= names
    assert "mul" not in names  # of a branch that is not taken
    assert sum(op.cycles for op in found.operations) == busy(found).sum()


# --- I/O tiles ------------------------------------------------------------------------------------


def fed(operation, elements, trips=10):
    """A loop that takes elements of a queue and works for a while."""
    queue = Queue("in")
    given = jax.ShapeDtypeStruct((elements,), jnp.float32)

    def body(total):
        (x,) = ops.dequeue(queue, [jax.typeof(jnp.zeros(given.shape, given.dtype))])
        return [operation(total) + x[:1024]]

    closed, _ = constants_to_arguments(trace_flat(body, [A]))
    return lowered(lambda x: ops.repeat_with_queues(closed, [], [x], trips, None), A, ipus=1)


@pytest.mark.parametrize("elements", [1024, 1 << 20])
def test_io_tiles_feed_beside_the_compute(elements):
    program = fed(jnp.sqrt, elements)
    alone = modelled(program)
    beside = modelled(program, overlaps_io=True)
    host = 100 + math.ceil(elements * 4 / 32e9 * CLOCK)
    compute = alone.cycles // 10 - host
    assert alone.cycles == 10 * (host + compute)
    assert beside.cycles == 10 * max(host, compute)
    assert beside.cycles == end(beside.steps)
    assert not overlaps(beside.steps, kinds=["host"])
    assert not overlaps(beside.steps, kinds=["sync", "exchange", "compute"])
    assert busy(beside).tolist() == busy(alone).tolist()


@pytest.mark.parametrize(("proportion", "fits"), [(1.0, True), (0.5, True), (0.49, False)])
def test_queues_go_without_io_tiles_that_cannot_hold_their_elements(proportion, fits):
    """Half of the memory of the four tiles, to the byte."""
    elements = 4 * CHIP.bytes_per_tile // 8
    program = fed(jnp.sqrt, elements)
    beside = modelled(program, overlaps_io=True, io_tiles=4, io_proportion=proportion)
    alone = modelled(program, io_tiles=4, io_proportion=proportion)
    assert (beside.cycles < alone.cycles) == fits
    assert (beside.cycles == alone.cycles) != fits
    said = [text for text in beside.assumptions if "I/O tiles" in text]
    assert len(said) == int(not fits)
    assert fits or f"{elements * 4} bytes" in said[0]
    assert not alone.assumptions


def test_io_tiles_do_nothing_else():
    """A quarter of the tiles set apart: the rest is a smaller chip."""
    found = profile(jnp.exp, A, io_tiles=4)
    small = profile(jnp.exp, A, target=dc.replace(CHIP, tiles_per_ipu=12))
    assert found.cycles == small.cycles > EXP
    assert not found.memory.tile_peak_bytes[:, 12:].any()
    np.testing.assert_array_equal(
        found.memory.tile_peak_bytes[:, :12], small.memory.tile_peak_bytes
    )


# --- kernels that are alike -----------------------------------------------------------------------


@pytest.fixture
def modelled_kernels(monkeypatch):
    """The listings of the kernels that are modelled from here on."""
    found: list[Listing] = []
    model_kernel = known_kernels.model_kernel

    def counting(listing, *rest, **options):
        found.append(listing)
        return model_kernel(listing, *rest, **options)

    monkeypatch.setattr(known_kernels, "model_kernel", counting)
    return found


@pytest.mark.parametrize("layers", [4, 40])
def test_equal_kernels_are_modelled_once(modelled_kernels, layers):
    """The first finds arguments that nobody has laid out; all others are alike."""

    def fn(x):
        for i in range(layers):
            x = on(i % 2, lambda x: jnp.exp(x), x)
        return x

    found = profile(fn, A, ipus=2)
    assert len(modelled_kernels) == 2
    assert busy(found)[0] == layers // 2 * EXP + (layers - 1) * (SYNC + BETWEEN)


def test_loops_are_modelled_once(modelled_kernels):
    profile(looping(1000), A, ipus=2)
    assert len(modelled_kernels) == 2


def test_scopes_make_a_difference(modelled_kernels):
    """Two kernels of one structure, one of which adds up in half precision."""
    half = jax.ShapeDtypeStruct((512, 512), jnp.float16)

    def layer(x, dtype):
        with jax.named_scope(marks.write_mark(marks.ATTRIBUTE, marks.PARTIALS_TYPE, dtype)):
            return x @ x

    def fn(x):
        y = on(0, jnp.exp, x)
        return on(1, layer, y, "float32"), on(2, layer, y, "float16")

    found = profile(fn, half, ipus=4)
    assert busy(found)[1] > busy(found)[2]
    assert len(modelled_kernels) == 3


def test_models_under_several_options_share_kernels(modelled_kernels):
    """What one model found changes nothing of another; only what an option changes is new."""

    def fn(x):
        half = x.astype(jnp.float16)
        return on(0, jnp.exp, x), on(1, lambda x: x @ x, half)

    program = lowered(fn, jax.ShapeDtypeStruct((512, 512), jnp.float32), ipus=2)
    plans = [PlanOptions(matmul_partials=dtype) for dtype in ("float32", "float16")]
    options = [
        ModelOptions(target=chip, plans=plan, reorders=reorders)
        for chip, plan, reorders in [
            (CHIP, plans[0], True),
            (CHIP, plans[1], True),
            (IPU2, plans[0], True),
            (CHIP, plans[0], False),
            (CHIP, plans[1], True),
        ]
    ]
    known = KnownParts()
    counts: list[int] = []
    for each in options:
        before = len(modelled_kernels)
        shared = model(program, each, known=known)
        counts.append(len(modelled_kernels) - before)
        assert_equal_models(shared, model(program, each))
    kernels = counts[0]
    assert counts == [kernels, 1, kernels, kernels, 0]  # new plans change the product alone


def assert_equal_models(found, wanted):
    assert found.cycles == wanted.cycles
    assert list(found.steps) == list(wanted.steps)
    assert found.memory.by_category == wanted.memory.by_category
    np.testing.assert_array_equal(found.memory.tile_peak_bytes, wanted.memory.tile_peak_bytes)
    cycles_of = [{o.name: o.cycles for o in model.operations} for model in (found, wanted)]
    assert cycles_of[0] == cycles_of[1]


def test_chips_with_another_clock_share_what_stays_on_the_tiles(modelled_kernels):
    """Only the sum over replicas, in a loop and a branch, takes other cycles at another clock."""

    def sums_in_loop(x):
        branches = [lambda v: v, lambda v: cross_replica_sum(v) * 2]
        return lax.fori_loop(0, 3, lambda i, v: lax.switch(i % 2, branches, v), x)

    def fn(x):
        return on(0, lambda v: jnp.exp(v) @ v.T, x), on(1, sums_in_loop, x)

    program = lowered(fn, jax.ShapeDtypeStruct((64, 64), jnp.float32), ipus=4, replicas=2)
    known = KnownParts()
    counts: list[int] = []
    for clock in (1.33e9, 1.85e9, 1.33e9):
        options = ModelOptions(target=dc.replace(CHIP, name=str(clock), clock_hz=clock))
        before = len(modelled_kernels)
        shared = model(program, options, known=known)
        counts.append(len(modelled_kernels) - before)
        assert_equal_models(shared, model(program, options))
    assert counts == [2, 1, 0]


def test_only_another_plan_has_a_kernel_modelled_anew(modelled_kernels):
    """Products that are planned alike under two shares, which lie as they would with either."""

    def loop(x):
        return lax.fori_loop(0, 3, lambda _, v: v @ v, x)

    def convolve(x, w):
        return lax.conv(x[None, None], w, (1, 1), "SAME")

    def fn(x, w):
        return on(0, loop, x), on(1, lambda v: v @ v, x), on(2, convolve, x, w)

    halves = [jax.ShapeDtypeStruct(shape, jnp.float16) for shape in [(256, 256), (1, 1, 3, 3)]]
    program, known = lowered(fn, *halves, ipus=4), KnownParts()
    counts: list[int] = []
    for share in (0.6, 0.5, 0.001, 0.6):
        plans = PlanOptions(matmul_proportion=share, convolution_proportion=max(share, 0.4))
        before = len(modelled_kernels)
        shared = model(program, ModelOptions(plans=plans), known=known)
        counts.append(len(modelled_kernels) - before)
        assert_equal_models(shared, model(program, ModelOptions(plans=plans)))
    assert counts == [3, 0, 2, 0]


def test_options_reach_the_planner():
    def cycles(**options):
        plans = PlanOptions(**options)
        half = jax.ShapeDtypeStruct((512, 512), jnp.float16)
        return profile(lambda x: x @ x, half, plans=plans).cycles

    assert cycles(matmul_partials="float16") < cycles(matmul_partials="float32")


def test_options_of_a_stage_reach_the_planner():
    half = jax.ShapeDtypeStruct((512, 512), jnp.float16)

    def cycles(partials):
        options = (("matmul_options", (("partialsType", partials),)),)
        spec = TaskSpec(kind=TaskRole.FORWARD, stage=0, options=options)
        return modelled(
            lowered(lambda x: run_as_task(lambda x: [x @ x], [x], spec), half, ipus=1)
        ).cycles

    assert cycles("half") < cycles("float")


def unlined(steps):
    return [dc.replace(step, origin="") for step in steps]


def test_a_profile_is_what_the_structure_says():
    def fn(x, w):
        return repeated(lambda c: (on(1, jnp.tanh, on(0, lambda c: c @ w, c)),), x)

    def again(first, second):
        return repeated(lambda c: (on(1, jnp.tanh, on(0, lambda c: c @ second, c)),), first)

    program = lowered(fn, M, M)
    one, two, other = modelled(program), modelled(program), profile(again, M, M, ipus=2)
    for found in (two, other):
        assert unlined(found.steps) == unlined(one.steps)
        assert found.cycles == one.cycles
        np.testing.assert_array_equal(found.memory.tile_peak_bytes, one.memory.tile_peak_bytes)
        assert found.memory.by_category == one.memory.by_category
        assert found.mappings == one.mappings


# --- pipelines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stages", "count"), [(2, 4), (2, 16), (4, 8), (4, 32)])
def test_the_bubble_of_grouped_pipelines(stages, count):
    """docs/hardware.md, Pipelines: N / (I + N), where N = 2 F."""
    found = modelled(pipeline(stages, count)).pipeline
    assert found is not None
    assert found.bubble_fraction == pytest.approx(2 * stages / (count + 2 * stages), rel=1e-12)
    assert (found.stages, found.micro_batches, found.schedule) == (stages, count, "grouped")


@pytest.mark.parametrize(
    "schedule", [schedules.grouped, schedules.interleaved, schedules.sequential]
)
def test_pipelines_do_all_their_tasks(schedule):
    found = modelled(pipeline(2, 8, schedule))
    tasks = {
        (step.stage, step.micro_batch, step.phase)
        for step in found.steps
        if step.micro_batch is not None
    }
    assert tasks == {(s, m, phase) for s in range(2) for m in range(8) for phase in ("fwd", "bwd")}
    assert found.pipeline is not None
    assert found.pipeline.tick_cycles.sum() == found.pipeline.cycles == found.cycles
    assert set(found.pipeline.stage_cycles) == {(s, p) for s in range(2) for p in ("fwd", "bwd")}


def test_more_micro_batches_take_longer_by_one_tick_each():
    short, long, longer = (modelled(pipeline(2, count)).cycles for count in (8, 16, 24))
    assert longer - long == long - short > 0


def test_a_sequential_pipeline_takes_the_sum():
    found = modelled(pipeline(2, 8, schedules.sequential))
    assert found.pipeline is not None
    work = 8 * sum(found.pipeline.stage_cycles.values())
    assert found.cycles > work
    moved = [s for s in found.steps if s.kind in ("sync", "inter_ipu") and s.stage is None]
    assert found.cycles == work + sum(step.cycles for step in moved if step.ipu == 1)


def test_recomputation_takes_longer():
    plain = modelled(pipeline(4, 8))
    again = modelled(pipeline(4, 8, options={"allow_recompute": True}))
    assert again.cycles > plain.cycles


def test_offloading_takes_longer():
    options = {"minimum_remote_bytes": 0}
    plain = modelled(pipeline(4, 8, options=options))
    away = modelled(pipeline(4, 8, options=options, offload_activations=True))
    assert away.cycles > plain.cycles
    assert {step.kind for step in away.steps} - {step.kind for step in plain.steps} == {"remote"}


# --- what always holds ----------------------------------------------------------------------------

MORE = {
    **PROGRAMS,
    "branches": lambda: lowered(branched, A, N),
    "loops": lambda: lowered(looping(4), A),
    "fed": lambda: fed(jnp.sqrt, 1 << 20),
    "fed pipeline": lambda: pipeline(2, 8, queue=Queue("in")),
    "replicated": lambda: lowered(looping(4), A, ipus=8),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", MORE)
def test_time_adds_up(name, beside):
    found = modelled(MORE[name](), overlaps_io=beside)
    assert found.cycles == end(found.steps)
    assert not overlaps(found.steps, kinds=["host"] if beside else [])
    assert busy(found).max(initial=0) <= found.cycles * (2 if beside else 1)
    spent = np.zeros(found.num_ipus)
    for operation in found.operations:
        spent[operation.ipu] += operation.cycles
    np.testing.assert_allclose(spent, busy(found))


@pytest.mark.parametrize("name", MORE)
def test_parts_lie_within_the_whole(name):
    def check(part):
        match part:
            case Group():
                children = zip(part.offset.tolist(), part.children, strict=True)
            case Loop():
                assert part.body.span <= part.period
                children = [((part.count - 1) * part.period, part.body)] if part.count else []
            case Tasks():
                bodies = [part.bodies[i] for i in part.which.tolist()]
                children = zip(part.start.tolist(), bodies, strict=True)
            case _:
                return
        for offset, child in children:
            assert 0 <= offset
            assert offset + child.span <= part.span
            check(child)

    found = modelled(MORE[name]())
    assert found.steps.trace.span == found.cycles
    check(found.steps.trace)


@pytest.mark.exhaustive
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["exp", "sqrt", "add"])),
        min_size=1,
        max_size=8,
    )
)
def test_random_programs_on_four_ipus(operations):
    """Each step reads the last one's result, so all of them, and the copies, add up."""
    works = {"exp": jnp.exp, "sqrt": jnp.sqrt}

    def fn(x):
        found = [x]
        for ipu, name in operations:
            found.append(on(ipu, works.get(name, lambda a: a + x), found[-1]))
        return found[1:]

    ipus = 1 << max(ipu for ipu, _ in operations).bit_length()
    found = profile(fn, A, ipus=ipus)
    cycles = {"exp": EXP, "sqrt": SQRT, "add": kernel(lambda a, b: a + b, A, A).cycles}
    sync = 100 + 2 * math.ceil(15e-9 * CLOCK * 2 * (1 + ipus // 4))
    want = sum(cycles[name] for _, name in operations)
    for (source, _), (target, _) in itertools.pairwise(operations):
        if source != target:
            leaves = source // 2 != target // 2
            passes = leaves and (source % 2) != (target % 2)  # the other one of its pair
            want += 20 * passes + sync + BETWEEN
    assert found.cycles == end(found.steps) == want
    assert not overlaps(found.steps)
    copies = [step for step in found.steps if step.kind == "inter_ipu"]
    assert set(collections.Counter((s.name, s.start_cycle) for s in copies).values()) <= {2}


def test_mappings_cover_every_value():
    program = lowered(looping(3), A)
    found = modelled(program)
    written = {
        (value, node.ipu)
        for node in ir.walk_nodes(program.body)
        if isinstance(node, ir.Execute)
        for value in (*node.writes, *node.reads)
    }
    assert written <= set(found.mappings)
    assert all(mapping.total_bytes == BYTES for mapping in found.mappings.values())


def test_replicas_in_several_racks() -> None:
    x = jax.ShapeDtypeStruct((1 << 16,), jnp.float32)
    one, two = (model(lowered(cross_replica_sum, x, ipus=ipus)) for ipus in (64, 128))
    assert not one.assumptions
    assert two.assumptions == ("2 racks of 64 IPUs, whose gateways send 25 GB/s for 4 IPUs",)
    assert two.cycles > one.cycles


def test_replicas_of_several_instances() -> None:
    x = jax.ShapeDtypeStruct((1 << 16,), jnp.float32)
    one = lowered(cross_replica_sum, x, ipus=4)
    two = lowered(cross_replica_sum, x, ipus=2, instances=2)
    assert ir.to_text(two).startswith("program main: 4 replicas of 1 IPU in 2 instances\n")
    together, apart = model(one), model(two)
    assert (together.replication_factor, together.instances) == (4, 1)
    assert (apart.replication_factor, apart.instances) == (4, 2)
    assert apart.cycles > together.cycles
    assert not together.assumptions
    assert apart.assumptions == (
        "2 instances on machines of their own, whose gateways send 25 GB/s for 4 IPUs",
    )
