"""Data sets that wait for answers: what is there is computed, and its results are handed over."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.engine.loop_steps import StreamedLoop
from ipujax.errors import OutOfRangeError
from ipujax.loops import repeat, while_loop
from tests.ipujax.feeding import configure, infeed, outfeed
from tests.ipujax.pipelining import run_pipeline

f32 = np.float32
DEPTHS = pytest.mark.parametrize("depth", [1, 2, 3, 8, None])
PATIENCE = 60.0  # seconds after which an answer does not come


class Answers:
    """A data set whose next element is made from the last answer, and who collects those.

    Args:
      count: elements until the data set ends.
      group: elements that are given out before their answers are waited for.
    """

    def __init__(self, count: int, group: int = 1):
        self.sink, self._count, self._group = outfeed(), count, group
        self._answers: queue.Queue[Any] = queue.Queue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._collect, daemon=True)

    def __iter__(self) -> Iterator[Any]:
        last = f32(0)
        for k in range(self._count):
            yield last + k % self._group
            if (k + 1) % self._group == 0:
                last = [self._answers.get(timeout=PATIENCE) for _ in range(self._group)][-1]

    def _collect(self) -> None:
        while not self._over.wait(0.0005):
            for answer in self.sink:
                self._answers.put(np.ravel(answer)[-1])

    def __enter__(self) -> Answers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE)


def ended(run: Callable[[], Any]) -> Any:
    """The loop variable when the data set ended."""
    with pytest.raises(OutOfRangeError) as caught:
        run()
    assert caught.value.carried is not None
    return caught.value.carried[0]


@pytest.mark.sampled(4)
@DEPTHS
@pytest.mark.parametrize("group", [1, 5])
def test_a_repeat_answers_before_it_asks(depth: int | None, group: int) -> None:
    with Answers(100, group) as answers:
        source = infeed(answers, prefetch_depth=depth)

        def body(v: Any, x: Any) -> Any:
            answers.sink.enqueue(x + 1)
            return v + 1

        assert ended(lambda: ipu.compile(lambda: repeat(10**6, body, [0], source))()) == 100


@pytest.mark.sampled(5)
@DEPTHS
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_repeat_over_several_ipus(depth: int | None, engine: str) -> None:
    configure(2)
    with Answers(60) as answers:
        source = infeed(answers, prefetch_depth=depth)

        def body(v: Any, x: Any) -> Any:
            with ipu.scopes.ipu_shard(0):
                y = x + 1
            with ipu.scopes.ipu_shard(1):
                answers.sink.enqueue(y * 1)
            return v + 1

        run = ipu.compile(lambda: repeat(10**6, body, [0], source), engine=engine)
        assert ended(run) == 60


@DEPTHS
def test_a_while_loop(depth: int | None) -> None:
    with Answers(60) as answers:
        source = infeed(answers, prefetch_depth=depth)

        def body(v: Any, x: Any) -> Any:
            answers.sink.enqueue(x + 1)
            return x + 1

        run = ipu.compile(lambda: while_loop(lambda v: v < 40, body, [f32(0)], source))
        assert run() == 40


def test_loops_inside_of_loops() -> None:
    """An outer iteration takes several elements, each of which waits for the one before."""
    with Answers(60) as answers:
        source = infeed(answers)

        def inner(v: Any, x: Any) -> Any:
            answers.sink.enqueue(x + 1)
            return v + 1

        run = ipu.compile(lambda: repeat(100, lambda v: repeat(4, inner, [v], source), [0]))
        assert ended(run) == 60


def test_replicas_answer_when_each_has_an_element() -> None:
    configure(2)
    with Answers(30) as answers:
        source = infeed(lambda: (x for x in answers for _ in range(2)), prefetch_depth=1)
        ipu.compile(lambda: repeat(30, lambda x: answers.sink.enqueue(x + 1), [], source))()


@pytest.mark.parametrize("schedule", ["Sequential", "Grouped"])
def test_a_pipeline_answers_when_its_stages_are_full(schedule: str) -> None:
    """Two stages of the Grouped schedule have two micro-batches under way, Sequential one."""
    configure(2)
    stages = [lambda x: x + 1, lambda x: x * 1]
    with Answers(24, group=1 if schedule == "Sequential" else 4) as answers:
        run_pipeline(
            stages,
            4,
            engine="replay",
            data=answers,
            outfeed_queue=answers.sink,
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule[schedule],
            repeat_count=5,
        )


def test_nothing_is_held_back_from_a_data_set_that_pauses() -> None:
    """All that was given out is answered although many more elements would fit into a chunk."""
    sink, came = outfeed(), threading.Semaphore(0)

    def dataset() -> Iterator[Any]:
        for k in range(1000):
            if k in (3, 70, 500):
                for _ in range(k - given[0]):
                    assert came.acquire(timeout=PATIENCE)
                given[0] = k
            yield f32(k)

    def collect() -> None:
        while not over.wait(0.0005):
            for _ in sink:
                came.release()

    given, over = [0], threading.Event()
    collector = threading.Thread(target=collect, daemon=True)
    collector.start()
    source = infeed(dataset)
    ipu.compile(lambda: repeat(1000, lambda x: sink.enqueue(x), [], source))()
    over.set()
    collector.join(PATIENCE)
    assert given == [500]


@pytest.mark.parametrize("sent", ["variable", "constant", "element"])
def test_buffers_have_room_for_what_passes_through(
    sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results that no kernel makes count as much as others."""
    sink, large, capacities = outfeed(), jnp.ones((64, 1024)), list[int]()
    kept = StreamedLoop.count_results_to_send

    def noted(loop: StreamedLoop, step: Any, capacity: int) -> int:
        capacities.append(capacity)
        return kept(loop, step, capacity)

    monkeypatch.setattr(StreamedLoop, "count_results_to_send", noted)

    def program(w: Any, constant: Any) -> Any:
        def body(w: Any, k: Any, *x: Any) -> Any:
            sink.enqueue({"variable": w, "constant": constant, "element": x}[sent])
            return w, k + 1

        source = infeed([np.ones((64, 1024), f32)] * 30) if sent == "element" else None
        return repeat(30, body, [w, 0], source)[1]

    assert ipu.compile(program)(large, large) == 30
    assert jax.tree.leaves(sink.dequeue())[0].shape == (30, 64, 1024)
    assert max(capacities) * large.nbytes <= 1 << 20
