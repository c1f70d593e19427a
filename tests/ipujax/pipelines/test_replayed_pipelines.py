from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import ipujax as ipu
from ipujax import pipelining_ops, schedules
from ipujax.engine import lanes
from ipujax.engine import pipelines as replayed
from ipujax.engine.node_kernels import NodeKernels
from ipujax.schedules import Phase
from lowering import ir, pipelines

STAGES, MICRO_BATCHES = 4, 16


def stages() -> list[Any]:
    def stage(number: int) -> Any:
        def function(weights: Any, x: Any) -> Any:
            y = np.float32(1) * (x @ weights[number])
            return y if number < STAGES - 1 else (y * y).mean()

        return function

    return [stage(number) for number in range(STAGES)]


def model(schedule: Any, updates: int = 1, **more: Any) -> Any:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def train(weights: Any, x: Any) -> Any:
        return pipelining_ops.pipeline(
            stages(),
            MICRO_BATCHES,
            repeat_count=updates,
            inputs=[x],
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.01), loss
            ),
            pipeline_schedule=schedule,
            variables=weights,
            **more,
        )

    return train, outfeed


@pytest.fixture
def four_ipus() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES
    config.configure_ipu_system()


WEIGHTS = [np.eye(3, dtype=np.float32) * (1 + n / 8) for n in range(STAGES)]
X = np.arange(6, dtype=np.float32).reshape(2, 3) / 6


@pytest.mark.exhaustive
@pytest.mark.usefixtures("four_ipus")
@pytest.mark.parametrize(
    "schedule",
    [
        schedules.grouped,
        schedules.interleaved,
        schedules.sequential,
        schedules.gpipe,
        schedules.one_f_one_b,
        schedules.zero_bubble,
    ],
)
def test_what_waits_is_exactly_what_the_fifos_hold(
    schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, _ = model(schedule)
    held = most_held_by_fifos(train, monkeypatch)
    assert {fifo.stage for fifo in held} >= {1, 2, 3}
    assert held == {fifo: fifo.depth + 1 for fifo in held}
    found = schedules.simulate(
        schedules.build(schedule, stages=STAGES, micro_batches=MICRO_BATCHES, training=True)
    )
    for stage in range(1, STAGES):  # activations wait from the forward to the last task of a stage
        assert max(held[fifo] for fifo in held if fifo.stage == stage) == found.in_flight[stage]


@pytest.mark.usefixtures("four_ipus")
@pytest.mark.parametrize("recompute", [False, True])
def test_what_another_stage_of_the_ipu_made_waits_from_there(
    recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computed again, the last forward task reads nothing; what it would read is there already."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES
    config.allow_recompute = recompute
    config.configure_ipu_system()
    train, _ = model(schedules.grouped, device_mapping=[0, 1, 2, 2])
    held = most_held_by_fifos(train, monkeypatch)
    assert held == {fifo: fifo.depth + 1 for fifo in held}


def most_held_by_fifos(train: Any, monkeypatch: pytest.MonkeyPatch) -> dict[ir.Fifo, int]:
    """Returns for how many micro-batches each FIFO holds values while the replay engine trains."""
    lowered = ipu.compile(train, engine="replay").lower(WEIGHTS, X)
    (node,) = (n for n in ir.walk_nodes(lowered.program.body) if isinstance(n, ir.Pipeline))
    held: dict[ir.Fifo, int] = defaultdict(int)
    run_task = replayed._Run.run_task
    left: list[int] = []

    def watched(run: Any, step: Any) -> None:
        run_task(run, step)
        for fifo in node.fifos:
            places = [(value, fifo.ipu) for value in fifo.values]
            waiting = sum(any(place in own for place in places) for own in run.under_way.values())
            held[fifo] = max(held[fifo], waiting)
        left.append(len(run.under_way))

    monkeypatch.setattr(replayed._Run, "run_task", watched)
    lowered.compile()(WEIGHTS, X)
    assert left[-1] == 0
    return dict(held)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("four_ipus")
@pytest.mark.parametrize("schedule", [schedules.grouped, schedules.zero_bubble])
def test_lanes_give_the_same_numbers(schedule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    train, outfeed = model(schedule)
    alone, _ = ipu.compile(train, engine="replay")(WEIGHTS, X)
    losses = outfeed.dequeue()
    ran: list[int] = []
    original = lanes.run_lanes_if_configured_alike

    def watched(*args: Any) -> bool:
        ran.append(len(args[0]))
        return original(*args)

    monkeypatch.setattr("ipujax.engine.pipelines.LANE_OPERATIONS", 0.0)
    monkeypatch.setattr("ipujax.engine.pipelines.count_lane_cores", lambda _: 3)
    monkeypatch.setattr("ipujax.engine.pipelines.run_lanes_if_configured_alike", watched)
    together, _ = ipu.compile(train, engine="replay")(WEIGHTS, X)
    assert ran == [3]
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(losses, outfeed.dequeue())


@pytest.mark.usefixtures("four_ipus")
@pytest.mark.parametrize(("step_rows", "engine"), [(8, "replay"), (1024, "fused")])
def test_threads_run_stages_whose_products_stay_on_one_core(
    step_rows: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(weights: Any, x: Any) -> Any:
        for matrix in weights:
            steps = x.reshape(-1, step_rows, x.shape[-1])
            x = lax.map(lambda step, matrix=matrix: step @ matrix, steps).reshape(x.shape)
        return (x * x).mean()

    step = pipelining_ops.value_and_grad(loss, micro_batches=4, stages=STAGES)
    weights = [np.eye(256, dtype=np.float32)] * STAGES
    monkeypatch.setattr("ipujax.engine.choose.count_lane_cores", lambda _: 2)
    compiled: Any = ipu.compile(step)
    assert compiled.lower(weights, np.ones((4096, 256), np.float32)).compile().engine == engine


@pytest.mark.usefixtures("four_ipus")
def test_an_error_in_one_lane_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipujax.engine.pipelines.LANE_OPERATIONS", 0.0)
    monkeypatch.setattr("ipujax.engine.pipelines.count_lane_cores", lambda _: 2)
    data = [X] * 5
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def train(weights: Any) -> Any:
        return pipelining_ops.pipeline(
            stages(),
            MICRO_BATCHES,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.01), loss
            ),
            variables=weights,
        )

    with pytest.raises(ipu.errors.OutOfRangeError) as caught:
        ipu.compile(train, engine="replay")(WEIGHTS)
    assert (caught.value.requested, caught.value.available) == (MICRO_BATCHES, 5)
    np.testing.assert_array_equal(caught.value.carried[0], WEIGHTS)


@pytest.mark.usefixtures("four_ipus")
def test_equal_stages_share_a_kernel() -> None:
    train, _ = model(schedules.grouped)
    compiled: Any = ipu.compile(train, engine="replay")
    executable = compiled.lower(WEIGHTS, X).compile()
    kernels = set(executable._machine.list_compiled_kernels())
    nodes = [n for n in ir.walk_nodes(executable.program.body) if isinstance(n, ir.Execute)]
    tasks = [n for n in ir.walk_nodes(executable.program.body) if isinstance(n, ir.Task)]
    middle = [
        t for t in tasks if t.spec.kind is pipelines.TaskRole.FORWARD and t.spec.stage in (1, 2)
    ]
    assert len(middle) == 2
    assert len(kernels) < len(nodes)


# --- lanes alone ----------------------------------------------------------------------------------


def lanes_of(*lanes_of_numbers: list[int]) -> list[list[Any]]:
    """Lanes of steps that do nothing; those of one micro-batch go from lane to lane."""
    last = len(lanes_of_numbers) - 1
    return [
        [
            SimpleNamespace(
                task=schedules.Task(lane, Phase.FORWARD, n), rank=lane, is_last=lane == last
            )
            for n in numbers
        ]
        for lane, numbers in enumerate(lanes_of_numbers)
    ]


def test_lanes_keep_the_order_of_each_micro_batch() -> None:
    done: list[Any] = []
    assert lanes.run_lanes_if_configured_alike(
        lanes_of([0, 1, 2], [0, 1, 2], [0, 1, 2]), lambda step: done.append(step.task)
    )
    assert len(done) == 9
    for number in range(3):
        assert [task.stage for task in done if task.micro_batch == number] == [0, 1, 2]


@pytest.mark.parametrize("fails_in", ["a lane", "asking for the context", "starting a thread"])
def test_lanes_that_cannot_start_end(fails_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ValueError(fails_in)

    do: Any = lambda step: None  # noqa: E731
    if fails_in == "a lane":
        do = fails
    elif fails_in == "starting a thread":
        monkeypatch.setattr("threading.Thread.start", fails)
    else:
        monkeypatch.setattr("lowering.jaxprs.jaxpr.jit_configuration_of_thread", fails)
    with pytest.raises(ValueError, match=fails_in):
        lanes.run_lanes_if_configured_alike(lanes_of([0], [0], [0]), do)


@pytest.mark.parametrize("main_has_steps", [True, False])
def test_an_interrupt_ends_the_other_lanes(main_has_steps: bool) -> None:
    """Be the calling thread at a step of its own, or waiting for the others."""
    main = threading.main_thread()
    begun = threading.Event()
    done: list[int] = []

    def do(step: Any) -> None:
        if threading.current_thread() is main:
            begun.wait(60)
            raise KeyboardInterrupt
        done.append(step.task.micro_batch)
        if not begun.is_set():
            begun.set()
            if not main_has_steps:
                # A signal on a thread's way into a wait is only seen after the wait.
                time.sleep(0.2)
                signal.pthread_kill(main.ident or 0, signal.SIGINT)
        time.sleep(0.01)

    first, second = lanes_of([1000] if main_has_steps else [], list(range(500)))
    for step in second:
        step.rank = 0
    with pytest.raises(KeyboardInterrupt):
        lanes.run_lanes_if_configured_alike([first, second], do)
    ended_with = len(done)
    time.sleep(0.05)
    assert 0 < len(done) == ended_with < 500


@pytest.mark.usefixtures("four_ipus")
@pytest.mark.parametrize("updates", [1, 3])
def test_updates_overwrite_donated_parameters_alone(
    updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten: list[Any] = []
    compile_kernel = NodeKernels.compile_kernel

    def watched(self: Any, node: Any, donated: Any = ()) -> Any:
        types = [aval.shape for aval in node.kernel.jaxpr.in_avals]
        overwritten.extend(
            shape
            for shape, value in zip(types, node.reads, strict=True)
            if (value, node.ipu) in donated and len(node.reads) == 2
        )
        return compile_kernel(self, node, donated)

    train, _ = model(schedules.grouped, updates)
    given = [jnp.asarray(w) for w in WEIGHTS]
    kept, _ = ipu.compile(train, engine="replay")(given, X)
    for one, other in zip(given, WEIGHTS, strict=True):
        np.testing.assert_array_equal(one, other)
    monkeypatch.setattr(NodeKernels, "compile_kernel", watched)
    taken, _ = ipu.compile(train, engine="replay", donate_argnums=0)(given, X)
    for one, other in zip(taken, kept, strict=True):
        np.testing.assert_array_equal(one, other)
    assert overwritten == [(3, 3)] * STAGES
