from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import ops
from lowering.ground import LoweringError
from lowering.jaxprs import jaxpr, lift_closed_over_refs
from lowering.ops import TaskRole, TaskSpec, run_as_task
from lowering.passes import discharge_refs
from tests.lowering.samples import Queue, S, V, jaxpr_text, shard, trace


def discharged(fn, *args):
    return discharge_refs(lift_closed_over_refs(trace(fn, *args))[0])


def test_marks_stay_on_reads_and_writes(golden):
    def fn(x):
        ref = jax.new_ref(x)
        with shard(1):
            ref[0] = 2.0
        with shard(0):
            return ref[...]

    golden(jaxpr_text(discharged(fn, V)))


def test_what_is_closed_over_comes_last(golden):
    ref, other = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.float32(1))

    def fn(x, y):
        ref[...] = x * other[...]
        return y + ref[0]

    closed, held = lift_closed_over_refs(trace(fn, V, S))
    assert {id(r) for r in held} == {id(ref), id(other)}
    pure = discharge_refs(closed)
    assert not jaxpr.touches_refs(pure)
    assert len(pure.in_avals) == 4
    assert len(pure.out_avals) == 3
    golden(jaxpr_text(pure))


def test_a_repeat_carries_what_its_body_touches():
    queue = Queue("out")

    def fn(x):
        ref, fixed = jax.new_ref(jnp.zeros(3)), jnp.arange(3.0)
        body = trace(lambda r, k, c: _step(r, k, c, queue), jax.typeof(ref), fixed, V)
        (x,) = ops.repeat_with_queues(body, [ref, fixed], [x], 4, None)
        return x, ref[...]

    pure = discharged(fn, V)
    (loop,) = (eqn for eqn in pure.jaxpr.eqns if eqn.primitive is ops.repeat_p)
    assert loop.params["num_consts"] == 1
    assert [aval.shape for aval in loop.params["body"].out_avals] == [(3,), (3,)]
    assert ops.uses_streams(pure)


def _step(ref, fixed, carried, queue):
    ref[...] += fixed
    ops.enqueue(queue, [ref[...]], None)
    return [carried + ref[0]]


def test_a_repeat_whose_count_is_known_later():
    def fn(x, n):
        ref = jax.new_ref(jnp.zeros(3))
        body = trace(_adding, jax.typeof(ref), V)
        (x,) = ops.repeat_with_queues(body, [ref], [x], n, None)
        return x, ref[...]

    pure = discharged(fn, V, jax.ShapeDtypeStruct((), jnp.int32))
    x = np.float32([1, 2, 3])
    result = jaxpr.run_equations(pure.jaxpr, pure.consts, [jnp.asarray(x), jnp.int32(2)])
    np.testing.assert_array_equal(result[0], x * 4)
    np.testing.assert_array_equal(result[1], x * 3)


def _adding(ref, carried):
    ref[...] += carried
    return [carried * 2]


def test_functions_without_refs_stay_as_they_are():
    closed = trace(jnp.sin, V)
    assert discharge_refs(closed) is closed
    assert lift_closed_over_refs(closed) == (closed, [])


def test_a_stage_may_not_use_a_ref_from_outside():
    def fn(x):
        ref = jax.new_ref(x)
        return run_as_task(lambda y: [y + ref[...]], [x], TaskSpec(kind=TaskRole.FORWARD, stage=0))

    with pytest.raises(LoweringError, match=r"(?s)stage uses a Ref.*test_discharge_refs\.py.*fix:"):
        discharged(fn, V)


def test_a_stage_may_use_its_own_refs():
    def stage(x):
        ref = jax.new_ref(x)
        ref[0] = 1.0
        return [ref[...]]

    pure = discharged(
        lambda x: run_as_task(stage, [x], TaskSpec(kind=TaskRole.FORWARD, stage=0)), V
    )
    assert not jaxpr.touches_refs(pure)
    (eqn,) = pure.jaxpr.eqns
    assert not eqn.effects


def test_what_jax_cannot_do_without_refs_is_named():
    @jax.custom_jvp
    def fn(x):
        ref = jax.new_ref(x)
        ref[...] += 1
        return ref[...]

    fn.defjvp(lambda primals, tangents: (fn(*primals), tangents[0]))
    wanted = r"(?s)JAX cannot do without.*custom_jvp_call.*test_discharge_refs\.py.*fix:"
    with pytest.raises(LoweringError, match=wanted):
        discharged(fn, V)


def test_variables_of_a_while_loop_with_a_queue_stay_in_front():
    structure = jax.tree.structure((0.0,))
    queue = Queue("in")

    def fn(x):
        ref = jax.new_ref(jnp.zeros(3))

        def step(carried):
            done, c = carried
            (element,) = ops.dequeue(queue, [jax.typeof(x)], loop=structure)
            ref[...] += element
            return done + 1, c * 2

        return lax.while_loop(lambda c: c[0] < 3, step, (0, 1.0)), ref[...]

    pure = discharged(fn, V)
    (loop,) = (eqn for eqn in pure.jaxpr.eqns if eqn.primitive.name == "while")
    assert [aval.shape for aval in loop.params["body_jaxpr"].out_avals] == [(), (), (3,)]
    assert [aval.shape for aval in loop.params["cond_jaxpr"].in_avals] == [(), (), (3,)]
