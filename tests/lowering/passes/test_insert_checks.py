from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import ipujax as ipu
from lowering import ir, lower, schedules
from lowering.ground import Options
from lowering.jaxprs import jaxpr
from lowering.ops import is_task
from lowering.passes import insert_checks
from lowering.pipelines import TaskRole, TaskSpec, run_as_task
from tests.lowering.pipelines.samples import (
    dense,
    gated,
    loop_of,
    micro_batch,
    pipelined,
    squares,
)
from tests.lowering.samples import V, jaxpr_text, trace

ALL = Options(catch_invalid=True, catch_division=True, catch_overflow=True)
X = np.array([1.0, 2.0, -1.0], np.float32)
ZERO = np.zeros(3, np.float32)
BIG = np.full(3, 3e38, np.float32)


def fault_of(fn, *args, options=ALL):
    """What a checked function reports: None, or the kind and the operation."""
    args = tuple(map(jnp.asarray, args))
    closed, faults = insert_checks(trace(fn, *args), options, 1)
    if not faults:
        return None
    *outputs, code = jaxpr.run_equations(closed.jaxpr, closed.consts, jax.tree.leaves(args))
    for mine, theirs in zip(outputs, jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if int(code) == 0:
        return None
    fault = faults[int(code) - 1]
    assert __file__ in fault.origin
    return fault.kind, fault.primitive


def test_a_division(golden):
    closed, faults = insert_checks(trace(lambda a, b: a / b, V, V), ALL, 1)
    kinds = "\n".join(f"{fault.kind}: {fault.primitive}" for fault in faults)
    golden(jaxpr_text(closed) + kinds)


def test_nothing_to_catch_changes_nothing():
    closed = trace(jnp.sin, V)
    assert insert_checks(closed, Options(), 1) == (closed, ())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fn", "args", "fault"),
    [
        (lambda a, b: a / b, (X, ZERO), ("division by zero", "div")),
        (lambda a, b: a / b, (ZERO, ZERO), ("invalid", "div")),
        (lambda a, b: a / b, (BIG, X / 9), ("overflow", "div")),
        (lambda a: jnp.log(a), (ZERO,), ("division by zero", "log")),
        (lambda a: jnp.sqrt(a), (X,), ("invalid", "sqrt")),
        (lambda a: a * a, (BIG,), ("overflow", "mul")),
        (lambda a: jnp.exp(a * 100), (X,), ("overflow", "exp")),
        (lambda a: (a * jnp.inf, a + jnp.inf), (X,), None),
        (lambda a: a * jnp.nan + 1, (X,), None),
        (lambda a: (a * 2).astype(jnp.int32) // 3, (X,), None),
    ],
)
def test_faults(fn, args, fault):
    assert fault_of(fn, *args) == fault


@pytest.mark.sampled(1)
@pytest.mark.parametrize("option", ["catch_invalid", "catch_division", "catch_overflow"])
def test_only_what_is_asked_for(option):
    kinds = {"catch_invalid": "invalid", "catch_division": "division by zero"}
    programs = [lambda a: jnp.sqrt(a), lambda a: jnp.log(a * 0), lambda a: a * 3e38 * 3e38]
    options = Options(**{option: True})
    found = [fault_of(program, X, options=options) for program in programs]
    assert {fault[0] for fault in found if fault} == {kinds.get(option, "overflow")}


def divided(c, by):
    return c / by


def divided_in_while(x):
    def body(c):
        return divided(c[0], x * 0), c[1] + 1

    return lax.while_loop(lambda c: c[1] < 2, body, (x, 0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.jit(divided)(x, x * 0),
        lambda x: lax.scan(lambda c, e: (divided(c, e), c), x[0], x * 0)[0],
        lambda x: lax.scan(lambda c, e: (c + 1, divided(e, c)), 0.0, x, reverse=True)[1],
        divided_in_while,
        lambda x: lax.cond(x[0] > 0, lambda: divided(x, x * 0), lambda: x),
        jax.vmap(divided_in_while),
        lambda x: jax.checkpoint(lambda a: divided(a, a * 0))(x),
    ],
    ids=["jit", "scan", "scan's stacks", "while", "cond", "vmap of while", "remat"],
)
def test_faults_come_out_of_bodies(fn):
    assert fault_of(fn, X) == ("division by zero", "div")


@pytest.mark.exhaustive
def test_the_first_fault_counts():
    assert fault_of(lambda x: jnp.sqrt(x) + jnp.log(x * 0), X) == ("invalid", "sqrt")


def test_branches_not_taken_report_nothing():
    assert fault_of(lambda x: lax.cond(x[0] > 5, lambda: x / (x * 0), lambda: x), X) is None


# --- pipelines ------------------------------------------------------------------------------------

SCHEDULES = {
    "grouped": schedules.grouped,
    "interleaved": schedules.interleaved,
    "sequential": schedules.sequential,
    "1F1B": schedules.one_f_one_b,
    "zero bubble": schedules.zero_bubble,
}


def tasks_of(closed):
    return [e for e in loop_of(closed).params["body"].jaxpr.eqns if is_task(e)]


def test_each_task_of_a_pipeline_watches_for_itself(golden):
    plain = pipelined(micro_batch([dense, gated, squares]), 3, 12)
    closed, faults = insert_checks(plain, Options(catch_invalid=True), 1)
    body = loop_of(closed).params["body"]
    assert len(body.jaxpr.eqns) == len(tasks_of(closed)) == 6
    assert {fault.kind for fault in faults} == {"invalid"}
    for eqn in body.jaxpr.eqns:
        operand, result = eqn.params["spec"].accumulated[-1]
        assert (operand, result) == (len(eqn.invars) - 1, len(eqn.outvars) - 1)
        assert eqn.invars[operand] in body.jaxpr.invars
        assert eqn.outvars[result].aval.shape == ()
    golden(ir.to_text(lower(plain, Options(num_ipus=4, catch_invalid=True))))


def test_tasks_that_cannot_fail_stay():
    def moved(w, x):
        return x[::-1] + 0 * w[:2]

    closed = pipelined(micro_batch([moved, lambda w, x: jnp.sum(x @ w)]), 2, 8)
    watched, faults = insert_checks(closed, Options(catch_division=True), 1)
    assert not faults
    assert watched is closed


def test_the_weight_update_stays_a_task():
    def program(a, b):
        (quotient,) = run_as_task(lambda x, y: [x / y], [a, b], TaskSpec(kind=TaskRole.UPDATE))
        return quotient

    closed, faults = insert_checks(trace(program, V, V), ALL, 1)
    assert faults
    assert sum(map(is_task, closed.jaxpr.eqns)) == 1
    assert fault_of(program, X, ZERO) == ("division by zero", "div")


def test_operations_are_watched_where_they_are():
    """A check of another stage's result would otherwise be a kernel on that stage's IPU."""
    closed = pipelined(micro_batch([dense, gated, squares]), 3, 12)
    program = lower(closed, Options(num_ipus=4, catch_invalid=True, catch_overflow=True))
    for node in ir.walk_nodes(program.body):
        if isinstance(node, ir.Task):
            (step,) = node.body.steps
            assert isinstance(step, ir.Execute)
            assert step.ipu == node.spec.stage


VARIABLES = {f"w{i}": jnp.eye(3) * (0.5 + i / 4) for i in range(3)}


def last_stage(v, x, divisor):
    return jnp.sum((x @ v["w2"]) / divisor)


def line_in(function):
    return function.__code__.co_firstlineno + 1


def watched_pipeline(schedule, divisors):
    """Trains three stages; the last one divides by what the infeed says."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([np.float32(d) for d in divisors])
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def first(v, divisor):
        return jnp.tanh(jnp.full((2, 3), 0.5) @ v["w0"]), divisor

    def second(v, x, divisor):
        return jnp.tanh(x @ v["w1"]), divisor

    def fn(variables):
        return ipu.pipelining_ops.pipeline(
            [first, second, last_stage],
            len(divisors),
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.1), loss
            ),
            pipeline_schedule=schedule,
            variables=variables,
        )

    return fn


def use(**checks):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    for name, value in checks.items():
        setattr(config.floating_point_behaviour, name, value)
    config.configure_ipu_system()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("schedule", "engine"),
    [("grouped", "fused"), ("zero bubble", "fused"), ("interleaved", "replay")],
)
def test_a_fault_of_a_micro_batch_names_the_line(schedule, engine):
    use(div0=True)
    divisors = [1.0] * 12
    divisors[5] = 0.0
    fn = watched_pipeline(SCHEDULES[schedule], divisors)
    with pytest.raises(ipu.errors.FloatingPointError, match="division by zero") as error:
        ipu.compile(fn, engine=engine)(VARIABLES)
    assert f"{__file__}:{line_in(last_stage)}" in str(error.value)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("schedule", "engine"), [("grouped", "replay"), ("sequential", "fused"), ("1F1B", "replay")]
)
def test_a_clean_pipeline_gives_the_same_numbers(schedule, engine):
    results = []
    for checks in (False, True):
        use(inv=checks, div0=checks)
        fn = watched_pipeline(SCHEDULES[schedule], [1.0 + i / 4 for i in range(12)])
        results.append(ipu.compile(fn, engine=engine)(VARIABLES)[0])
    for mine, theirs in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
