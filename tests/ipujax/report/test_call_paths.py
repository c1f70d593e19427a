"""Operations know how the user's code came to them, and whether they go forward or backward."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ground import shorten_call_path
from ipujax.report import Report
from tests.harness import Golden
from tests.ipujax.feeding import infeed
from tests.ipujax.reporting import configured, struct, training, zeros

WIDTH = 64
X, W = struct(8, WIDTH), struct(WIDTH, WIDTH)


def dense(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


@jax.jit
def block(x: Any, w: Any) -> Any:
    return dense(x, w)


def model(params: Any, x: Any) -> Any:
    x = block(x, params[0])
    x = block(x, params[1])
    return jnp.sum(x**2)


def clipped(params: Any, x: Any, rate: Any) -> Any:
    loss, gradients = jax.value_and_grad(model)(params, x * 2)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients))
    rate = jnp.exp(rate)
    return [p - rate * g / norm for p, g in zip(params, gradients, strict=True)], jnp.log(loss)


def line(function: Callable[..., Any], below: int) -> str:
    """The line that is so many below the one of `def`, or of a decorator."""
    code = getattr(function, "__wrapped__", function).__code__
    return f"{code.co_filename}:{code.co_firstlineno + below} ({code.co_qualname})"


def lines(report: Report) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(o.name.split()[0], str(o.direction), o.call_path) for o in report.operations}


def report_of(function: Callable[..., Any], *args: Any, ipus: int = 1, **options: Any) -> Report:
    configured(ipus, **options)
    return ipu.compile(function).lower(*args).report()


def test_paths_are_the_lines_of_the_calls() -> None:
    def step(params: Any, x: Any) -> Any:
        return jax.grad(model)(params, x)

    found = lines(report_of(step, [W, W], X))
    top, inside = line(step, 1), (line(block, 2), line(dense, 1))
    calls = [(top, line(model, number), *inside) for number in (1, 2)]
    for primitive in ("dot_general", "tanh"):
        forward = {path for name, way, path in found if (name, way) == (primitive, "forward")}
        assert forward == set(calls)
    backward = {path for name, way, path in found if (name, way) == ("dot_general", "backward")}
    assert backward == set(calls)


def test_paths_go_through_loops_branches_and_stages() -> None:
    def stage(params: Any, x: Any, y: Any) -> Any:
        return block(x, params[0]), y

    def last(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean((block(x, params[1]) - y) ** 2)

    def train(params: Any) -> Any:
        return ipu.pipelining_ops.pipeline(
            [stage, last],
            4,
            infeed_queue=infeed(zeros(8, WIDTH)),
            outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.1), loss
            ),
            variables=params,
        )

    found = lines(report_of(train, [W, W], ipus=2))
    inside = (line(block, 2), line(dense, 1))
    products = {path for name, _, path in found if name == "dot_general"}
    assert {path[1:] for path in products} == {
        (line(function, 1), *inside) for function in (stage, last)
    }
    assert {path[0] for path in products} == {line(train, 1)}

    def looped(params: Any, x: Any) -> Any:
        def choose(i: Any, x: Any) -> Any:
            return jax.lax.cond(i > 1, dense, block, x, params)

        return ipu.loops.repeat(3, lambda x: choose(jnp.sum(x), x), x)

    found = lines(report_of(looped, W, X))
    products = {path for name, _, path in found if name == "dot_general"}
    start = (line(looped, 4), line(choose_of(looped), 1))
    branches = {(line(dense, 1),), (line(block, 2), line(dense, 1))}
    assert {path[:2] for path in products} == {start}
    assert {path[2:] for path in products} < branches  # only one is taken to run


def choose_of(function: Callable[..., Any]) -> Any:
    """The function that is defined in another."""
    (code,) = (c for c in function.__code__.co_consts if getattr(c, "co_name", "") == "choose")
    return type("Function", (), {"__code__": code})


def test_lines_of_installed_packages_are_left_out() -> None:
    def step(params: Any, slots: Any, x: Any) -> Any:
        gradients = jax.grad(model)(params, x)
        updates, slots = optax.adam(0.1).update(gradients, slots, params)
        return optax.apply_updates(params, updates), slots

    slots = jax.eval_shape(optax.adam(0.1).init, [W, W])
    report = report_of(step, [W, W], slots, X)
    updates = [o for o in report.operations if o.direction == "update"]
    assert {o.call_path for o in updates} == {(line(step, 2),), (line(step, 3),)}
    assert any("optax" in o.origin for o in updates)


def test_a_path_names_a_file_once() -> None:
    frames = ("/a/train.py:100 (main)", "/a/net.py:17 (f)", "/a/net.py:5 (g)", "/b/net.py:6 (h)")
    assert shorten_call_path(frames) == "train.py:100 > net.py:17 > :5 > net.py:6"
    assert shorten_call_path(("C:\\a\\net.py:17 (f.<locals>.g)",)) == "net.py:17"
    assert shorten_call_path(()) == ""


def test_what_is_not_differentiated_goes_where_it_is_needed() -> None:
    report = report_of(clipped, [W, W], X, struct())
    way = {(o.name.split()[0], o.origin): str(o.direction) for o in report.operations}
    of = {(name, int(at.split(":")[1].split(" ")[0])): d for (name, at), d in way.items()}
    first = clipped.__code__.co_firstlineno
    assert of["mul", first + 1] == "forward"  # what the model reads
    assert of["log", first + 4] == "forward"  # what is made of the loss
    assert of["exp", first + 3] == "update"  # the rate
    assert {d for (_, at), d in of.items() if at == first + 2} == {"update"}
    assert {d for (_, at), d in of.items() if at == first + 4} == {"update", "forward"}


def remat(params: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.sum(jax.checkpoint(lambda w: dense(dense(x, w), w))(w))

    return jax.value_and_grad(loss)(params)


def test_what_is_computed_again_is_backward() -> None:
    products: Counter[str | None] = Counter()
    for operation in report_of(remat, W, X).operations:
        if operation.name.startswith("dot_general"):
            products[operation.direction] += operation.runs
    assert products == {"forward": 2, "backward": 2 + 3}
    train, args = training(2, 8)
    report = report_of(train, *args, ipus=2, allow_recompute=True)
    tanh = {o.direction for o in report.operations if o.name.startswith("tanh")}
    assert tanh == {"forward", "backward"}


def looping(function: Callable[..., Any], *carried: int) -> Callable[..., Any]:
    """Trains in a loop, whose variables are some of the arguments."""

    def run(*args: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            del i
            given = list(args)
            for number, value in zip(carried, state, strict=True):
                given[number] = value
            return tuple(function(*given)[: len(carried)])

        return jax.lax.fori_loop(0, 3, body, tuple(args[number] for number in carried))

    return run


def scanned(params: Any, xs: Any) -> Any:
    """Adds up gradients over micro-batches, then updates."""

    def add(total: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(model)(params, x)
        return jax.tree.map(jnp.add, total, gradient), loss

    total, losses = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), xs)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, total), losses


def kept(params: Any, x: Any) -> Any:
    """Gives back what it gets, twice, and a number."""
    new = jax.tree.map(jnp.subtract, params, jax.grad(model)(params, x))
    return new, x, x.T, params, params[0].T, 1.0


def sharded(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            h = dense(x, params[0])
        with ipu.scopes.ipu_shard(1):
            return jnp.sum(dense(h, params[1]))

    return [p - g for p, g in zip(params, jax.grad(loss)(params), strict=True)]


def fed(params: Any) -> Any:
    queue = infeed(zeros(8, WIDTH))
    return ipu.loops.repeat(
        3, lambda p, x, _: jax.tree.map(jnp.subtract, p, jax.grad(model)(p, x)), (params,), queue
    )


TRAINED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "plain": (clipped, ([W, W], X, struct()), 1),
    "checkpointed": (remat, (W, X), 1),
    "jitted": (jax.jit(clipped), ([W, W], X, struct()), 1),
    "looping": (looping(clipped, 0), ([W, W], X, struct()), 1),
    "scanned": (scanned, ([W, W], struct(4, 8, WIDTH)), 1),
    "kept": (kept, ([W, W], X), 1),
    "sharded": (sharded, ([W, W], X), 2),
    "fed": (fed, ([W, W],), 1),
    "pipelined": (*training(2, 8), 2),
    "repeated": (*training(2, 4, repeat_count=3, offload_weight_update_variables=True), 2),
}


@pytest.mark.parametrize("name", TRAINED)
def test_every_operation_of_a_trained_step_has_a_direction(name: str) -> None:
    function, args, ipus = TRAINED[name]
    report = report_of(function, *args, ipus=ipus)
    ways = Counter(o.direction for o in report.operations if o.name != "pipeline transfers")
    assert set(ways) <= {"forward", "backward", "update"}, ways
    assert {"forward", "backward"} <= set(ways)
    for operation in report.operations:
        assert operation.direction == "backward" or not operation.name.endswith(", backward")
        assert operation.direction is not None or operation.name == "pipeline transfers"


@pytest.mark.parametrize("name", ["scanned", "sharded", "repeated"])
def test_steps_are_those_of_their_operations(name: str) -> None:
    function, args, ipus = TRAINED[name]
    report = report_of(function, *args, ipus=ipus)
    spent: Counter[int] = Counter()
    for step in report.steps:
        assert step.operation is not None
        operation = report.operations[step.operation]
        assert (step.ipu, step.direction) == (operation.ipu, operation.direction)
        spent[step.operation] += step.cycles
    assert [spent[i] for i in range(len(report.operations))] == [
        round(o.cycles) for o in report.operations
    ]
    columns = report.steps.columns()
    places = [step.operation for step in report.steps]
    np.testing.assert_array_equal(columns["operation"], places)


def test_programs_without_a_backward_pass_have_no_directions() -> None:
    report = report_of(lambda x: jnp.sin(x) @ x.T, X)
    assert {o.direction for o in report.operations} == {None}
    assert {step.direction for step in report.steps} == {None}
    assert None not in {step.operation for step in report.steps}


def test_paths_and_directions_come_back_from_a_file() -> None:
    report = report_of(sharded, [W, W], X, ipus=2)
    document = json.loads(json.dumps(report.to_dict()))
    back = Report.from_dict(document)
    assert back.operations == report.operations
    assert list(back.steps) == list(report.steps)
    for operation in document["operations"]:  # as in reports of earlier versions
        del operation["call_path"], operation["direction"], operation["number"]
    for node in document["steps"]["nodes"]:
        node.pop("operation", None)
    del document["program"]["operation"]
    old = Report.from_dict(document)
    assert {o.direction for o in old.operations} == {None}
    assert {step.operation for step in old.steps} == {None}


def test_a_small_report(golden: Golden) -> None:
    """Every operation, its direction, and where it comes from, in the order of the steps."""
    report = report_of(functools.partial(clipped, rate=0.5), [W, W], X)
    shown = dict.fromkeys(step.operation for step in report.steps)
    first = dense.__code__.co_firstlineno
    rows: list[str] = []
    for place in shown:
        operation = report.operations[place or 0]
        path = [frame.rpartition(" (") for frame in operation.call_path]
        lines = [
            f"{f.rpartition(':')[0]}:{int(f.rpartition(':')[2]) - first} ({n}" for f, _, n in path
        ]
        rows.append(f"{operation.direction:8}  {operation.name}  {shorten_call_path(lines)}")
    golden("\n".join(rows) + "\n")
