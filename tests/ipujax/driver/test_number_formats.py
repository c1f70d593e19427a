"""What `floating_point_behaviour` and the numeric scopes make of float16, against the facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import ScopeError
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions, pipeline
from ipujax.scopes import (
    ipu_shard,
    outside_compilation_scope,
    partials_type,
    stochastic_rounding,
)
from ipujax.utils import reset_ipu_seed
from lowering import ir
from lowering.ops import all_gather, cross_replica_sum
from tests.ipujax.pipelining import run_pipeline

HALF = jnp.float16
LARGEST = 65504.0


def use(ipus: Any = 1, **behaviour: bool) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in behaviour.items():
        setattr(config.floating_point_behaviour, name, value)
    config.configure_ipu_system()


def half(*values: float) -> Any:
    return jnp.array(values, HALF)


def run(fn: Callable[..., Any], *args: Any, engine: str = "auto") -> Any:
    return np.asarray(ipu.compile(fn, engine=engine)(*args))


# --- limits -----------------------------------------------------------------------------------

OVERFLOWS: dict[str, Callable[[Any], Any]] = {
    "mul": lambda x: x * x,
    "exp": jnp.exp,
    "sum": lambda x: lax.reduce_sum_p.bind(jnp.full(9, x[0]), axes=(0,), out_sharding=None)[None],
    "dot": lambda x: (x[None] @ x[:, None])[0],
    "conv": lambda x: lax.conv(x[None, None], x[None, None], (1,), "VALID")[0, 0],
    "scan": lambda x: lax.scan(lambda c, _: (c * 10, None), x, None, length=4)[0],
    "scatter": lambda x: jnp.zeros(1, HALF).at[jnp.zeros(9, int)].add(jnp.tile(x, 9)),
    "scatter-mul": lambda x: jnp.ones(1, HALF).at[jnp.zeros(2, int)].multiply(jnp.tile(x, 2)),
    "scatter-sub": lambda x: jnp.zeros(1, HALF).at[jnp.zeros(9, int)].subtract(-jnp.tile(x, 9)),
    "jit": lambda x: jax.jit(lambda x: x * x)(x),
    "cond": lambda x: lax.cond(x[0] > 0, lambda: x * x, lambda: x),
    "vmap": jax.vmap(lambda x: x * x),
    "grad": jax.grad(lambda x: jnp.sum((x * x * 1e4).astype(jnp.float32))),
    "cast": lambda x: (x.astype(jnp.float32) * 1e4).astype(HALF),
    "integer": lambda x: (x.astype(jnp.int32) * 100).astype(HALF),
}


@pytest.mark.sampled(2)
@pytest.mark.fact("fp_behaviour.overflow_saturates")
@pytest.mark.fact("fp_behaviour.nanoo")
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [({"inv": False}, LARGEST), ({"nanoo": True}, np.nan), ({"set_all": False}, LARGEST)],
)
def test_overflows(behaviour: dict[str, bool], expected: float, engine: str) -> None:
    def every(x: Any) -> Any:
        return {name: fn(x) for name, fn in OVERFLOWS.items()}

    plain = ipu.compile(every)(half(10000))
    use(**behaviour)
    limited = ipu.compile(every, engine=engine)(half(10000))
    for name in OVERFLOWS:
        np.testing.assert_array_equal(plain[name], half(np.inf), name)
        np.testing.assert_array_equal(limited[name], half(expected), name)


def test_a_negative_overflow() -> None:
    use(inv=False)
    np.testing.assert_array_equal(run(lambda x: x * 1000, half(-1000)), half(-LARGEST))


@pytest.mark.fact("fp_behaviour.div0")
def test_divisions_by_zero() -> None:
    def fn(x: Any) -> Any:
        by_zero = x / 0, jnp.log(x * 0), lax.rsqrt(x * 0), lax.integer_pow(x * 0, -1)
        return *by_zero, lax.erf_inv(x / 10000), lax.zeta(x / 10000, x), x * 0 / 0

    assert np.isinf(run(fn, half(10000)))[:6].all()
    use(inv=False)
    assert np.isnan(run(fn, half(10000))).all()


@pytest.mark.fact("fp_behaviour.nan_to_int")
def test_nan_as_an_integer() -> None:
    use(inv=False)
    out = run(lambda x: x.astype(jnp.int32), half(np.nan, -3.7, 65504))
    np.testing.assert_array_equal(out, [-(2**31), -3, 65504])


def test_what_is_infinite_stays_so_and_other_types_are_left_alone() -> None:
    use(nanoo=True)
    x = half(np.inf, -np.inf)
    np.testing.assert_array_equal(run(lambda x: (x * 2, x @ x[:, None], jnp.exp(x))[0], x), x)
    assert np.isposinf(run(lambda x: x[:1] @ x[:1], x))
    for dtype in (np.float32, jnp.bfloat16):
        assert np.isposinf(run(lambda x: x * x * x / 0, jnp.array(1e30, dtype)).astype(np.float32))

    def on_the_host(x: Any) -> Any:
        with outside_compilation_scope():
            return x * x

    assert np.isposinf(run(on_the_host, HALF(1000)))


def test_within_the_limits_numbers_are_those_of_jax() -> None:
    x = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16).view(np.float16)
    plain = run(arithmetic, x)
    use(inv=False)
    limited = run(arithmetic, x)
    finite = np.isfinite(plain)
    np.testing.assert_array_equal(limited[finite], plain[finite])
    made_of_finite = np.isfinite(x) & np.isfinite(x[::-1])
    assert not np.isinf(limited[:, made_of_finite]).any()


def arithmetic(x: Any) -> Any:
    y = x[::-1]
    return jnp.stack([x + y, x - y, x * y, x / y, jnp.sqrt(jnp.abs(x)), x * 0.001])


# --- exceptions -------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.fact("fp_behaviour.div0_exc")
@pytest.mark.parametrize(
    ("name", "fn", "message"),
    [
        ("div0", lambda x: x / 0, r"division by zero in `divide` \(div\)"),
        ("div0", lambda x: lax.erf_inv(x / 10000), r"division by zero in `erf inv` \(erf_inv\)"),
        ("oflo", lambda x: x * x, r"overflow in `multiply` \(mul\)"),
        ("oflo", lambda x: x[None] @ x[:, None], r"overflow in `matmul` \(dot_general\)"),
        ("oflo", OVERFLOWS["grad"], "overflow in"),
        ("inv", lambda x: x * 0 / 0, r"invalid in `divide` \(div\)"),
        ("inv", lambda x: (x * jnp.nan).astype(jnp.int32), "invalid in `cast`"),
        ("set_all", lambda x: lax.scan(lambda c, _: (c * c, None), x, None, length=2)[0], "mul"),
    ],
)
def test_exceptions(name: str, fn: Any, message: str) -> None:
    use(**{name: True})
    with pytest.raises(ipu.errors.FloatingPointError, match=message) as error:
        run(fn, half(10000))
    assert __file__ in str(error.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("power", [3, 2.5])
@pytest.mark.parametrize(
    ("base", "name", "message"),
    [
        (1e30, "oflo", r"overflow in `power` \((integer_)?pow\)"),
        (0.0, "div0", "division by zero in `power`"),
    ],
)
def test_powers_may_overflow_or_divide_by_zero(
    power: float, base: float, name: str, message: str
) -> None:
    power = power if base else -power
    for switch in ("oflo", "div0"):
        use(**{switch: True})
        fn = lambda x: x**power  # noqa: E731
        if switch == name:
            with pytest.raises(ipu.errors.FloatingPointError, match=message):
                run(fn, np.float32(base))
        else:
            assert np.isinf(run(fn, np.float32(base)))


# --- stochastic rounding ----------------------------------------------------------------------

TENTHS = np.full(1000, 0.1, np.float32)
NEIGHBOURS = np.array([0.1, 0.10004], np.float16)


def cast(x: Any) -> Any:
    return x.astype(HALF)


@pytest.mark.sampled(1)
@pytest.mark.fact("dropout_rng.reset_same")
@pytest.mark.fact("dropout_rng.sr_pair")
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_the_seed_decides(engine: str) -> None:
    use([1, 1], esr=True)
    rounded = ipu.compile(cast, engine=engine)
    other = ipu.compile(cast, engine=engine, device="/device:IPU:1")
    assert (rounded(TENTHS) != other(TENTHS)).any()
    results: list[Any] = []
    for seed in (1, 1, 2):
        reset_ipu_seed(seed)
        results.append(np.asarray(rounded(TENTHS)))
    results.append(np.asarray(rounded(TENTHS)))
    np.testing.assert_array_equal(results[0], results[1])
    assert len(np.unique(results, axis=0)) == 3
    np.testing.assert_array_equal(np.unique(results), NEIGHBOURS)


def test_the_nearer_neighbour_is_more_frequent() -> None:
    use(esr=True)
    low, high = NEIGHBOURS.astype(np.float64)
    share = (run(cast, np.full(1 << 16, 0.1, np.float32)) == NEIGHBOURS[1]).mean()
    np.testing.assert_allclose(share, (0.1 - low) / (high - low), atol=0.01)


def test_every_number_becomes_a_neighbour() -> None:
    use(esr=True)
    random = np.random.default_rng(0)
    x = random.normal(size=1 << 14) * 10.0 ** random.integers(-9, 4, 1 << 14)
    x = np.clip(x, -LARGEST, LARGEST).astype(np.float32)
    out = run(cast, x)
    below = np.nextafter(out, np.float16(-np.inf)).astype(np.float32)
    above = np.nextafter(out, np.float16(np.inf)).astype(np.float32)
    assert ((below < x) & (x < above)).all()
    exact = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(run(cast, exact.astype(np.float32)), exact)


def test_code_grows_with_the_operations_not_exponentially() -> None:
    """XLA computes cheap operations again for each of their readers; roundings are many."""
    use(esr=True, nanoo=False)

    def count_operations_of_chain(length: int) -> float:
        def fn(x: Any) -> Any:
            for _ in range(length):
                x = x - (x * x).mean()
            return x

        return ipu.compile(fn).lower(np.ones(64, HALF)).compile().cost_analysis()["flops"]

    assert count_operations_of_chain(12) < 5 * count_operations_of_chain(3)


def test_scopes_decide_for_their_operations() -> None:
    def fn(x: Any) -> Any:
        with stochastic_rounding(True):
            inside = lax.scan(lambda c, e: (c, cast(e)), None, x)[1]
            with stochastic_rounding(False):
                innermost = cast(x)
        return inside, innermost, cast(x)

    for esr in (None, False, True):
        if esr is not None:
            use(esr=esr)
        inside, innermost, around = run(fn, TENTHS)
        np.testing.assert_array_equal(np.unique(inside), NEIGHBOURS)
        np.testing.assert_array_equal(np.unique(innermost), NEIGHBOURS[:1])
        assert len(np.unique(around)) == 1 + bool(esr)


def test_the_innermost_scope_decides() -> None:
    use(esr=True)

    def fn(x: Any, y: Any) -> Any:
        results = [(x + y, True)]
        for outer in (False, True):
            with stochastic_rounding(outer):
                with stochastic_rounding(not outer):
                    results.append((x + y, not outer))
                results.append((x + y, outer))
        expected.extend(stochastic for _, stochastic in results)
        return [out for out, _ in results]

    expected: list[bool] = []
    results = run(fn, np.ones(4096, HALF), np.full(4096, 1e-3, HALF))
    assert [len(np.unique(out)) == 2 for out in results] == expected
    np.testing.assert_array_equal(results[1 + expected[1:].index(False)], HALF(1 + 1e-3))


def test_gradients_are_rounded_too() -> None:
    def loss(x: Any) -> Any:
        with stochastic_rounding(True):
            y = x * HALF(1.001)
        return jnp.sum(y, dtype=jnp.float32) * 3

    gradient = run(jax.grad(loss), jnp.ones(1000, HALF))
    exact = 3 * float(HALF(1.001))
    np.testing.assert_allclose(np.mean(gradient, dtype=np.float64), exact, atol=2e-4)
    assert len(np.unique(gradient)) == 2


def test_replicas_round_differently() -> None:
    use(4, esr=True)
    rows = run(lambda x: all_gather(cast(x), 4), TENTHS)
    assert len(np.unique(rows, axis=0)) == 4


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("schedule", "engine"), [("interleaved", "replay"), ("zero_bubble", "replay")]
)
def test_pipelines_round_alike_whatever_the_schedule(schedule: str, engine: str) -> None:
    use(2, esr=True)
    reference = trained(schedules.grouped, "fused")
    mine = trained(getattr(schedules, schedule), engine)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(reference), strict=True):
        np.testing.assert_array_equal(one, other)
    use(2)
    assert (np.asarray(trained(schedules.grouped, "fused")["a"]) != reference["a"]).any()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ipus", [2, 4])
def test_limits_in_pipelines(ipus: int) -> None:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def model() -> Any:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(
            [np.full(1, i, np.float16) for i in range(4 * ipus)]
        )
        stages = [lambda x: x * 30000, lambda x: x.astype(jnp.float32)]
        return pipeline(stages, 8, infeed_queue=infeed, outfeed_queue=outfeed)

    use(ipus, inv=False)
    ipu.compile(model)()
    exact = 30000.0 * np.arange(4 * ipus)
    np.testing.assert_array_equal(
        np.ravel(outfeed.dequeue()), np.minimum(exact, LARGEST).astype(np.float16)
    )
    use(ipus, oflo=True)
    with pytest.raises(ipu.errors.FloatingPointError, match=r"overflow in `multiply` \(mul\)"):
        ipu.compile(model)()


def test_sums_over_replicas_end_at_the_largest_number() -> None:
    use(4, inv=False)
    np.testing.assert_array_equal(
        run(lambda x: cross_replica_sum(x, 4), half(-20000)), half(-LARGEST)
    )


def trained(schedule: Any, engine: str) -> Any:
    random = np.random.default_rng(0)
    rows = random.normal(size=(8, 4, 8)).astype(np.float16)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(list(rows))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    variables = {"a": jnp.eye(8, dtype=HALF) * 0.7, "b": jnp.eye(8, dtype=HALF) * 0.9}
    stages = [
        lambda v, x: jnp.tanh(x @ v["a"]),
        lambda v, x: jnp.sum(jnp.square(x @ v["b"]), dtype=jnp.float32),
    ]

    def fn(variables: Any) -> Any:
        return pipeline(
            stages,
            8,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.sgd(0.01), loss),
            pipeline_schedule=schedule,
            variables=variables,
        )[0]

    reset_ipu_seed(3)
    return ipu.compile(fn, engine=engine)(variables)


# --- partial results --------------------------------------------------------------------------


def with_partials(dtype: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    def scoped(*operands: Any) -> Any:
        with partials_type(dtype):
            return fn(*operands)

    return scoped


def in_blocks(a: Any, b: Any) -> Any:
    """The product of `[m, k]` and `[k, n]` whose partial sums are float16, with NumPy."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    blocks = -(-a.shape[1] // 16)
    width = -(-a.shape[1] // blocks)
    for start in range(0, a.shape[1], width):
        part = slice(start, start + width)
        block = a[:, part].astype(np.float32) @ b[part].astype(np.float32)
        total = (total.astype(np.float32) + block.astype(np.float16)).astype(np.float16)
    return total


@pytest.mark.sampled(1)
@pytest.mark.parametrize("depth", [1, 16, 100])
def test_products_with_partials(depth: int) -> None:
    random = np.random.default_rng(depth)
    a, b = (random.normal(size=s).astype(np.float16) for s in ((5, depth), (depth, 3)))
    exact = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    np.testing.assert_allclose(run(with_partials(np.float32, jnp.matmul), a, b), exact, rtol=2e-3)
    blocked = run(with_partials(np.float16, jnp.matmul), a, b)
    np.testing.assert_allclose(blocked, in_blocks(a, b), rtol=2e-3, atol=1e-2)

    def convolved(a: Any, b: Any) -> Any:
        return lax.conv(a[:, :, None], b.T[:, :, None], (1,), "VALID")[:, :, 0]

    np.testing.assert_allclose(
        run(with_partials(np.float16, convolved), a, b), blocked, rtol=2e-3, atol=1e-2
    )


def test_float16_partials_lose_what_float32_ones_keep() -> None:
    a = jnp.ones((1, 4096), HALF)
    b = jnp.full((4096, 1), 1.0, HALF).at[:32].set(1024)
    product = lambda a, b: (a @ b)[0, 0]  # noqa: E731
    exact = 32 * 1024 + 4064
    assert run(with_partials(np.float32, product), a, b) == np.float16(exact)
    assert run(with_partials(np.float16, product), a, b) == np.float16(32768)
    gradient = jax.grad(with_partials(np.float16, lambda a, b: (a.T @ b)[0, 0]))
    assert run(gradient, a.T, b).shape == (4096, 1)


@pytest.mark.parametrize("partials", ["half", "float16", "float", "float32"])
def test_options_ask_for_partials_as_the_scope_does(partials: str) -> None:
    a = np.ones((1, 4096), np.float16)
    b = np.where(np.arange(4096) < 32, 1024, 1).astype(np.float16)[:, None]
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.matmuls.poplar_options = {"partialsType": partials}
    config.configure_ipu_system()
    found = np.float16(32768 if partials in ("half", "float16") else 32 * 1024 + 4064)
    assert run(jnp.matmul, a, b) == found
    for dtype, wanted in ((HALF, 32768), (np.float32, 32 * 1024 + 4064)):
        scoped = with_partials(dtype, jnp.matmul)
        assert run(scoped, a, b) == np.float16(wanted)  # the scope is nearer

    def convolved(a: Any, b: Any) -> Any:
        return lax.conv(a[:, :, None], b.T[:, :, None], (1,), "VALID")[:, :, 0]

    exact = np.float16(32 * 1024 + 4064)
    assert run(convolved, a, b) == exact  # not a product of matrices
    config.convolutions.poplar_options = {"partialsType": partials}
    config.configure_ipu_system()
    assert run(convolved, a, b) == found


def test_stages_ask_for_partials() -> None:
    use(2)
    a = np.ones((1, 4096), np.float16)
    b = np.where(np.arange(4096) < 32, 1024, 1).astype(np.float16)[:, None]
    halves = PipelineStageOptions(matmul_options={"partialsType": "half"})
    _, sent = run_pipeline(
        [
            lambda i: (i, jnp.matmul(a, b)[0, 0]),
            lambda i, first: (first, jnp.matmul(a, b)[0, 0]),
        ],
        2,
        data=[np.float32(0)] * 2,
        forward_propagation_stages_poplar_options=[halves, PipelineStageOptions()],
    )
    first, second = (np.asarray(each)[0] for each in sent)
    assert (first, second) == (np.float16(32768), np.float16(32 * 1024 + 4064))


def loop_over_two_ipus(x: Any, w: Any) -> Any:
    def step(carry: Any, _: None) -> tuple[Any, None]:
        with ipu_shard(0):
            half_way = carry @ w
        with ipu_shard(1):
            return half_way @ w, None

    return lax.scan(step, x, None, length=2)[0]


@pytest.mark.parametrize("engine", ["replay", "auto"])
def test_scopes_around_loops_over_ipus_ask_for_partials(engine: str) -> None:
    use(2)
    x, w = np.random.default_rng(3).normal(size=(2, 32, 32)).astype(np.float16)
    wanted = x
    for _ in range(4):
        wanted = in_blocks(wanted, w)
    blocked = run(with_partials(np.float16, loop_over_two_ipus), x, w, engine=engine)
    np.testing.assert_allclose(blocked, wanted, rtol=1e-2, atol=1)
    assert (blocked != run(loop_over_two_ipus, x, w, engine=engine)).any()


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "jit": lambda x, w: jax.jit(lambda x: x @ w)(x),
    "checkpoint": lambda x, w: jax.checkpoint(lambda x: x @ w)(x),
    "scan": lambda x, w: lax.scan(lambda x, _: (x @ w, None), x, None, length=2)[0],
    "while": lambda x, w: lax.while_loop(lambda x: x[0, 0] > 0, lambda x: x @ w, x),
    "cond": lambda x, w: lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: x),
    "two IPUs": loop_over_two_ipus,
}


@pytest.mark.parametrize("name", BODIES)
def test_scopes_around_bodies_are_modelled(name: str) -> None:
    use(2)
    x = jax.ShapeDtypeStruct((512, 512), HALF)
    cycles = {
        dtype: ipu.compile(with_partials(dtype, BODIES[name]), replicas=1).lower(x, x)
        .report().cycles
        for dtype in (np.float16, np.float32)
    }  # fmt: skip
    assert cycles[np.float16] < cycles[np.float32]


@pytest.mark.parametrize("wrong", [np.int8, np.float64, "halves", None])
def test_partials_of_other_types(wrong: Any) -> None:
    with pytest.raises(ScopeError, match="partials are float16 or float32, not"):
        with_partials(wrong, jnp.matmul)(half(1), half(1))


def test_products_of_float32_are_left_alone() -> None:
    a = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    fn = with_partials(np.float16, lambda a: a @ a.T)
    np.testing.assert_array_equal(run(fn, a), run(lambda a: a @ a.T, a))


def test_partial_sums_are_emulated_in_what_runs_alone() -> None:
    use()
    x = np.ones((64, 64), np.float16)
    lowered = ipu.compile(with_partials(np.float16, lambda x: jnp.sin(x @ x))).lower(x)
    assert "repeat" in str(lowered)
    machine = lowered.modelled_program
    assert not machine.emulates
    assert kinds_of_equations(machine) == ["dot_general", "sin"]
    config = ipu.config.IPUConfig()
    config.floating_point_behaviour.oflo = True  # whose faults are those of partial sums
    config.configure_ipu_system()
    watched = ipu.compile(with_partials(np.float16, lambda x: jnp.sin(x @ x))).lower(x)
    assert kinds_of_equations(watched.modelled_program) == ["dot_general", "sin"]
    with pytest.raises(FloatingPointError, match="dot_general"):
        watched.compile()(np.full((64, 64), 300, np.float16))


def kinds_of_equations(program: ir.Program) -> list[str]:
    executes = (node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Execute))
    return [eqn.primitive.name for node in executes for eqn in node.kernel.jaxpr.jaxpr.eqns]


def test_reports_are_of_the_machine_which_does_all_this_by_itself() -> None:
    def step(x: Any) -> Any:
        with partials_type(HALF), stochastic_rounding(True):
            return jnp.sin(x @ x)

    x = np.ones((64, 64), np.float16)
    use()
    alone = ipu.compile(lambda x: jnp.sin(x @ x)).lower(x).report()
    report = ipu.compile(step).lower(x).report()
    assert {o.name for o in report.operations} == {o.name for o in alone.operations}
    assert report.arguments == alone.arguments
