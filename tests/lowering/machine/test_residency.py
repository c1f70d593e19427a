"""What each IPU holds of a program, counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import Options, ir, lower, schedules
from lowering.jaxprs import trace_flat
from lowering.machine import ModelOptions, Shape, model
from lowering.machine.programs import bytes_stored_per_replica
from lowering.ops import Storage, bring_from_storage, move_to_storage, repeat_with_queues
from lowering.pipelines import Recomputation
from tests.lowering.machine.samples import (
    BYTES,
    CHIP,
    A,
    at_worst,
    held,
    homes,
    modelled,
    pipeline,
)
from tests.lowering.pipelines.samples import dense, micro_batch, spec_of, squares
from tests.lowering.samples import N, lowered, outside, shard, trace

HALF = jax.ShapeDtypeStruct((512,), jnp.float32)
REMOTE = Storage(remote=True)


def on(number, function, *args):
    with shard(number):
        return function(*args)


def holds(fn, *args, ipus=1):
    """Bytes on each IPU at its worst step."""
    return [held(home) for home in homes(lowered(fn, *args, ipus=ipus))]


# --- arguments, constants and results -------------------------------------------------------------


def test_arguments_are_always_there():
    (home,) = homes(lowered(lambda x, y: (x.sum() + y[0]).astype(jnp.int8), A, A, ipus=1))
    assert [(t.name, t.operation, t.category) for t in home.always] == [
        ("float32[1024]", "argument", "variables")
    ] * 2


def test_constants_are_always_there():
    table = np.ones(1024, np.float32)
    (home,) = homes(lowered(lambda x: (x * jnp.asarray(table)).sum(), A, ipus=1))
    assert sorted(t.category for t in home.always) == ["constants", "variables"]


def test_a_result_takes_the_place_of_an_argument():
    assert holds(jnp.sin, A) == [BYTES]
    assert holds(lambda x: (jnp.cos(x), jnp.sin(x)), A) == [2 * BYTES]
    assert holds(lambda x, y: (x + y, x - y), A, A) == [3 * BYTES]  # x - y takes the place of x


def test_arguments_are_on_every_ipu_that_reads_them():
    def fn(x):
        return on(0, jnp.sin, x), on(1, jnp.cos, x)

    assert holds(fn, A, ipus=2) == [BYTES, BYTES]


def test_a_copy_is_another_tensor():
    def fn(x):
        return on(1, lambda a: a * 2, on(0, jnp.sin, x))

    assert holds(fn, A, ipus=2) == [BYTES, BYTES]


def test_what_is_read_later_is_not_written_over():
    def fn(x):
        a = on(0, jnp.sin, x)
        b = on(1, lambda a: a * 2, a)
        return on(0, lambda b: b + x, b)

    assert holds(fn, A, ipus=2) == [2 * BYTES, BYTES]


def test_weights_survive_what_is_computed_from_them():
    """The first kernel reads the weights for the last time, but the second reads them again."""

    def squares(w):
        a = jnp.sin(w)
        return (a * a).sum()

    def fn(w):
        b = on(1, lambda a: a + 1, on(0, squares, w))
        return on(0, lambda b: w[0] * b, b)

    home, _ = homes(lowered(fn, A, ipus=2))
    assert at_worst(home.alive).activation_bytes == BYTES + 4


def test_host_calls_bring_new_tensors():
    def fn(x):
        y = on(0, jnp.sin, x)
        with outside():
            z = jnp.log(y)
        return on(0, lambda z: z + y, z)

    assert holds(fn, A, ipus=1) == [2 * BYTES]


# --- loops ----------------------------------------------------------------------------------------


def repeated(step, *start):
    return lax.scan(lambda c, _: (step(*c), None), start, None, length=3)[0]


def test_a_loop_variable_takes_its_arguments_place():
    """IPU 0 has c's copy, and doubles it in place; IPU 1 the variable, and what comes back."""

    def fn(x):
        return repeated(lambda c: (on(1, lambda a: a + 1, on(0, lambda c: c * 2, c)),), x)

    assert holds(fn, A, ipus=2) == [BYTES, 2 * BYTES]


def test_what_a_loop_reads_is_not_its_variable():
    """IPU 1: x, which every iteration reads, the variable, and a."""

    def fn(x):
        return repeated(lambda c: (on(1, lambda a: a * x, on(0, lambda c: c + 1, c)),), x)

    assert holds(fn, A, ipus=2) == [BYTES, 3 * BYTES]


@pytest.mark.parametrize("argument", [True, False])
def test_two_variables_with_one_beginning(argument):
    """IPU 1: both variables, what comes from IPU 0, and one new tensor beside it."""

    def fn(x):
        x = x if argument else on(1, lambda x: x + 1, x)

        def step(a, b):
            h = on(0, lambda: a + b)
            return on(1, lambda: (h * 2, h * 3))

        return repeated(step, x, x)

    assert holds(fn, A, ipus=2)[1] == 4 * BYTES


def doubled(x):
    """Something on IPU 0 that is no argument, and too large to be in the place of one."""
    return on(0, lambda: jnp.concatenate([x, x]))


def later(x):
    """Something on IPU 0 that begins after everything else there."""
    return on(0, lambda a: a * 2, on(1, lambda: jnp.cos(x)))


@pytest.mark.parametrize("case", ["swap", "shift", "same", "constant"])
def test_variables_that_pass_each_other_on(case):
    """Beside x, two tensors live through the loop and after it, and then another one."""

    def fn(x):
        a, b = doubled(x), doubled(x + 1)

        def step(a, b):
            c = on(1, lambda s: s * 2, on(0, lambda: jnp.sin(a).sum()))
            c = on(0, lambda: a * c)
            return {"swap": (b, a), "shift": (b, c), "same": (a, b), "constant": (b, b)}[case]

        a, b = repeated(step, a, b)
        return a, b, later(a + b)

    found = holds(fn, HALF, ipus=2)[0]
    assert found >= BYTES // 2 + 3 * BYTES
    assert found <= BYTES // 2 + 5 * BYTES


def test_what_is_made_before_a_loop_outlives_it():
    """y is what every iteration leaves, and is read once more behind the loop."""

    def fn(x):
        y, a = doubled(x), doubled(x + 1)

        def step(a):
            s = on(1, lambda s: s * 2, on(0, lambda: jnp.sin(a).sum()))
            return (on(0, lambda: y * 1 + 0 * s),)

        (a,) = repeated(step, a)
        b = later(a)
        return a, b, on(0, lambda: y + b)

    assert holds(fn, HALF, ipus=2)[0] >= BYTES // 2 + 3 * BYTES


def test_stacks_and_slices():
    rows = jax.ShapeDtypeStruct((4, 1024), jnp.float32)

    def fn(x, xs):
        def step(c, row):
            a = on(0, lambda: c + row)
            return on(1, lambda: a * 2), a

        return lax.scan(step, x, xs)

    first, second = homes(lowered(fn, A, rows, ipus=2))
    # IPU 0: four rows, their stack, a row, and c, which a takes the place of.
    assert held(first) == (4 + 4 + 1 + 1) * BYTES
    assert held(second) == 2 * BYTES
    assert {t.operation for t in at_worst(first.alive).tensors} >= {"stack", "slice"}


def test_a_branch_leaves_alone_what_others_need():
    def fn(x, n):
        y = on(1, lambda: jnp.concatenate([x, x]))

        def first(a):
            return on(1, lambda h: h * 2, on(0, jnp.sin, a))

        z = lax.switch(n, [first, lambda a: a], y)
        q = on(1, lambda a: a * 2, on(0, jnp.sin, z))
        return on(1, lambda: y + z * q)

    program = lowered(fn, HALF, N, ipus=2)
    assert any(isinstance(node, ir.Switch) for node in ir.walk_nodes(program.body))
    assert held(homes(program)[1]) == BYTES // 2 + 3 * BYTES


# --- storage --------------------------------------------------------------------------------------


def test_what_is_stored_remotely_is_not_on_the_tiles():
    """The weights come and go; x stays."""

    def fn(x, w):
        kept = move_to_storage(w, REMOTE)

        (kept,) = repeated(
            lambda kept: (move_to_storage(bring_from_storage(kept, REMOTE) + x, REMOTE),), kept
        )
        return bring_from_storage(kept, REMOTE)

    (home,) = homes(lowered(fn, A, A, ipus=1))
    assert [t.operation for t in home.always] == ["argument"]
    assert held(home) == 2 * BYTES
    assert home.remote_bytes == BYTES


def test_one_at_a_time():
    """However many are stored, one is on the tiles."""

    def fn(count):
        def run(*ws):
            kept = [move_to_storage(w, REMOTE) for w in ws]

            def step(*kept):
                return tuple(
                    move_to_storage(jnp.sin(bring_from_storage(k, REMOTE)), REMOTE) for k in kept
                )

            return [bring_from_storage(k, REMOTE) for k in repeated(step, *kept)]

        return homes(lowered(run, *[A] * count, ipus=1))[0]

    assert held(fn(1)) == held(fn(5)) == BYTES
    assert fn(5).remote_bytes == 5 * BYTES


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_each_replica_keeps_its_part(replicas):
    whole = Shape((1025,), "float32")
    sharded = Storage(remote=True, sharded=True)
    assert bytes_stored_per_replica(whole, sharded, replicas) == -(-4100 // replicas)
    assert bytes_stored_per_replica(whole, REMOTE, replicas) == 4100


@pytest.mark.fact("distributed.global_replication")
def test_sharded_on_the_tiles():
    """Two replicas keep half each; the whole is there while it is worked on.

    Those of another instance keep the same.
    """
    sharded = Storage(sharded=True)

    def fn(w, x):
        kept = move_to_storage(w * 2, sharded)
        return bring_from_storage(kept, sharded) + x

    def run(num_ipus, instances=1):
        options = Options(num_ipus=num_ipus, instances=instances, minimum_remote_bytes=0)
        return homes(lower(trace(fn, A, A), options))

    one, two = run(1), run(2)
    assert held(run(2, instances=4)[0]) == held(two[0])
    assert len(one) == len(two) == 1
    worst = at_worst(two[0].alive)
    stored = [t.total_bytes for t in worst.tensors if t.operation == "store"]
    assert stored in ([BYTES // 2], [])
    assert two[0].remote_bytes == 0
    assert held(two[0]) == held(one[0]) - BYTES // 2


# --- pipelines ------------------------------------------------------------------------------------


def fifos(program):
    (loop,) = (n for n in ir.walk_nodes(program.body) if isinstance(n, ir.Pipeline))
    return loop.fifos


def bytes_of(program, value):
    return program.avals[value].size * program.avals[value].dtype.itemsize


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize(("schedule", "factor"), [("grouped", 2), ("interleaved", 1)])
def test_fifos_are_as_deep_as_their_stage_is_far(stages, schedule, factor):
    """docs/hardware.md, Pipelines: m * (F - 1 - s) micro-batches; grouped, m is 2, else 1."""
    program = pipeline(stages, 2 * stages, getattr(schedules, schedule))
    want = [0] * stages
    for fifo in fifos(program):
        bytes_ = sum(bytes_of(program, value) for value in fifo.values)
        want[fifo.ipu] += factor * (stages - 1 - fifo.stage) * bytes_
    assert any(want)
    assert modelled(program).memory.by_category["fifos"] == sum(want)
    per_ipu = [
        sum(t.total_bytes for t in at_worst(home.alive).tensors if t.category == "fifos")
        for home in homes(program)
    ]
    assert per_ipu == want
    assert per_ipu[-1] == 0


def test_the_second_pipeline_takes_the_firsts_place():
    """Its FIFOs begin when those of the first are gone."""
    body = micro_batch([dense, squares])
    consts = len(body.in_avals) - len(body.out_avals)

    def program(count):
        def run(*flat):
            totals = flat[consts:]
            for i in range(count):
                spec = spec_of(2, name=str(i))
                totals = repeat_with_queues(body, flat[:consts], totals, 8, None, spec)
            return totals

        return lower(trace_flat(run, body.in_avals), Options(num_ipus=2))

    one, two = homes(program(1)), homes(program(2))
    assert len([n for n in program(2).body.steps if isinstance(n, ir.Pipeline)]) == 2
    assert list(map(held, one)) == list(map(held, two))
    assert modelled(program(2)).memory.by_category["fifos"] > 0


def memory(**more):
    return modelled(pipeline(4, 8, **more)).memory


def test_schedules_differ_in_what_waits():
    waits = [
        memory(schedule=schedule).by_category["fifos"]
        for schedule in (schedules.sequential, schedules.interleaved, schedules.grouped)
    ]
    assert waits[0] == 0
    assert 2 * waits[1] == waits[2] > 0


def test_recomputation_keeps_less():
    """Of every dense stage two values wait; recomputed, only its input does."""
    kept = memory()
    again = memory(options={"allow_recompute": True})
    assert again.by_category["fifos"] < kept.by_category["fifos"]
    assert again.by_category["fifos"] > 0


@pytest.mark.parametrize("recompute", [False, True])
def test_offloading_moves_what_waits(recompute):
    options = {"allow_recompute": recompute, "minimum_remote_bytes": 0}
    here = memory(options=options)
    away = memory(options=options, offload_activations=True)
    assert here.remote_bytes.sum() == 0
    assert away.by_category["fifos"] == 0
    assert away.remote_bytes.sum() == here.by_category["fifos"] > 0


def test_accumulators_take_what_their_type_takes():
    def fn(dtype):
        def run(x):
            def step(total):
                a = on(0, lambda: jnp.cumsum(x))
                b = on(1, lambda: (a * 2).astype(dtype))
                return (on(1, lambda: total + b),)

            return repeated(step, jnp.zeros(1024, dtype))

        return homes(lowered(run, A, ipus=2))[1]

    def variables(home):
        tensors = (*home.always, *at_worst(home.alive).tensors)
        return sum(t.laid.mapping.total_bytes for t in tensors if "1024" in t.name)

    whole, half = fn(jnp.float32), fn(jnp.float16)
    assert variables(whole) - variables(half) >= BYTES // 2


# --- what always holds ----------------------------------------------------------------------------

EMPTY = jax.ShapeDtypeStruct((0,), jnp.float32)
KEY = jax.eval_shape(lambda: jax.random.key(0))


def of_type(dtype):
    return jax.ShapeDtypeStruct((32, 32), dtype)


def odd(x):
    return x, x @ x, jnp.where(x == x, x, x), (x != x).astype(jnp.float32)


def looping(x, n):
    def summed(c):
        return lax.scan(lambda a, row: (a + row, row), c, c[:, None] + c)[0]

    def step(i, c):
        c = lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, c + i)
        return lax.cond(c[0] > 0, jnp.sin, summed, c)

    return lax.fori_loop(0, n, step, x)


def squared(rows):
    return jax.vmap(lambda row: row @ row)(rows)


def random(key):
    return jax.random.normal(jax.random.split(key)[0], (99,))


PROGRAMS = {
    "empty": lambda: lowered(lambda: (), ipus=1),
    "identity": lambda: lowered(lambda x: x, A, ipus=1),
    "literals": lambda: lowered(lambda x: (1.0, x, 3), A, ipus=1),
    "scalars": lambda: lowered(lambda x: x * 2 + 1, N, ipus=1),
    "no elements": lambda: lowered(lambda x: (x * 2, jnp.zeros((0, 3)), x.sum()), EMPTY, ipus=1),
    "empty product": lambda: lowered(lambda x: x[:, None].T @ x[:, None], EMPTY, ipus=1),
    "keys": lambda: lowered(random, KEY, ipus=1),
    **{
        str(np.dtype(dtype)): lambda dtype=dtype: lowered(odd, of_type(dtype), ipus=1)
        for dtype in (jnp.bfloat16, jnp.int8, jnp.bool_, jnp.complex64, jnp.float16, jnp.uint32)
    },
    "control flow": lambda: lowered(looping, HALF, N, ipus=1),
    "replicas": lambda: lowered(squared, of_type(jnp.float32), ipus=4),
    "grouped": lambda: pipeline(4, 8),
    "zero bubble": lambda: pipeline(2, 8, schedules.zero_bubble),
    "interleaved, recomputed": lambda: pipeline(
        4, 8, schedules.interleaved, options={"allow_recompute": True}
    ),
    "recomputed before": lambda: pipeline(
        4,
        8,
        recomputation=Recomputation.THEN_BACKPROPAGATE,
        options={"allow_recompute": True},
    ),
    "offloaded": lambda: pipeline(
        4, 8, offload_activations=True, options={"minimum_remote_bytes": 0}
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_books_balance(name):
    program = PROGRAMS[name]()
    found = model(program, ModelOptions(target=CHIP)).memory
    assert sum(found.by_category.values()) == found.peak_bytes.sum()
    assert (found.peak_bytes >= found.always_live_bytes).all()
    assert (found.peak_bytes <= found.tile_peak_bytes.sum(axis=1)).all()
    assert min(found.by_category.values()) >= 0
    for ipu, home in enumerate(homes(program)):
        always = sum(live.laid.mapping.bytes_per_tile() for live in home.always)
        assert (found.tile_peak_bytes[ipu] >= always).all()
        assert (home.alive.tile_peak_bytes >= 0).all()
        worst = at_worst(home.alive)
        assert worst.activation_bytes + worst.temporary_bytes == worst.most_bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_biggest_tensors_are_among_those_alive(name):
    found = modelled(PROGRAMS[name]()).memory
    sizes = [tensor.total_bytes for tensor in found.biggest]
    assert sizes == sorted(sizes, reverse=True)
    ipu, tile = found.worst
    assert sum(tensor.tile_bytes for tensor in found.biggest) <= found.tile_peak_bytes[ipu, tile]
    assert {tensor.ipu for tensor in found.biggest} <= {ipu}
