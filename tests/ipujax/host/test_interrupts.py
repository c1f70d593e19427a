"""Real SIGINTs at many moments, and processes that end while a data set is being read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from textwrap import dedent

import pytest

from ipujax.ground import Interrupts
from tests.harness import ROOT


def process(source: str) -> str:
    """What a program prints; fails if it aborts or takes too long."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(source)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    for sign in ("terminate called", "Fatal Python error", "Traceback"):
        assert sign not in done.stderr, done.stderr
    return done.stdout


AGREES = """
import itertools, os, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
import ipujax as ipu
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the shell has set
config = ipu.config.IPUConfig(); config.auto_select_ipus = 2; config.configure_ipu_system()
begun = threading.Event()
def dataset():
    for k in itertools.count():
        if k > 20: begun.set()
        if not PROMPT: time.sleep(0.0005 * (k % 3 == 0) + 0.02 * (k % 100 == 99))
        yield np.float32(k)
source = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
sink = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
def body(v, x):
    with ipu.scopes.ipu_shard(0): y = x + 1
    with ipu.scopes.ipu_shard(1): sink.enqueue(y - 1)
    return v + 1
def repeat(n, v): return ipu.loops.repeat(n, body, [v], source)
def whiles(n, v): return ipu.loops.while_loop(lambda v: v < n, body, [v], source)
def pipeline(n, v):
    ipu.pipelining_ops.pipeline([lambda x: x + 1, lambda x: x - 1], 30, infeed_queue=source,
        outfeed_queue=sink, repeat_count=10000)
    return v
run = ipu.compile(LOOP, engine=ENGINE)
run.lower(np.int32(0), jnp.int32(0))
got, interrupted = [], 0
for attempt in range(12):
    def interrupt():
        begun.wait()
        time.sleep(0.01 + 0.013 * attempt)
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Thread(target=interrupt)
    timer.start()
    try:
        run(np.int32(10**6), jnp.int32(0))
    except KeyboardInterrupt:
        interrupted += 1
    timer.join()
    got += np.ravel(jax.tree.leaves(sink.dequeue())[0]).tolist()
assert not sink.running and not source.running
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
rest = source.rows(3)[0]
assert got + rest.tolist() == list(range(len(got) + 3)), (len(got), rest)
print(interrupted, len(got) > 0)
"""


@pytest.mark.sampled(0, 3)
@pytest.mark.parametrize("prompt", ["True", "False"])
@pytest.mark.parametrize(
    ("loop", "engine"),
    [("repeat", "fused"), ("repeat", "replay"), ("whiles", "auto"), ("pipeline", "replay")],
)
def test_what_was_read_and_what_was_sent_agree(loop: str, engine: str, prompt: str) -> None:
    source = AGREES.replace("LOOP", loop).replace("ENGINE", repr(engine)).replace("PROMPT", prompt)
    assert process(source) == "12 True\n"


ENDS = """
import gc, os, queue, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
import ipujax as ipu
signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update("jax_enable_compilation_cache", False)  # the compiler shall have work
gc.disable()  # what interrupts JAX's callback of the collector is told, and thrown away
large, small = jnp.ones((300, 300)), jnp.ones((32, 32))
step = jax.jit(lambda x: jax.lax.fori_loop(0, 30, lambda i, x: jnp.tanh(x @ x), x))
entered = threading.Event()
def dataset():
    yield np.float32(0)
    while True:
        entered.set()
        WORK
        yield np.float32(1)
source = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
run = ipu.compile(lambda v: ipu.loops.repeat(10**6, lambda v, x: v + x, [v], source))
def interrupt():
    entered.wait()
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    run(jnp.float32(0))
except KeyboardInterrupt:
    print("interrupted")
"""
WORK = {
    "in_a_jitted_call": "step(large).block_until_ready()",
    "in_many_calls": "[np.asarray(step(small)) for _ in range(10**9)]",
    "in_the_compiler": "jax.jit(lambda x: jnp.linalg.svd(step(x)))(large)",
    "in_a_trace": "jax.jit(lambda x: sum(x + i for i in range(10**9)))(small)",
    "in_python": "all(True for _ in range(10**12))",
    "asleep": "time.sleep(10**6)",
    "waiting": "queue.Queue().get()",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("work", WORK)
def test_a_process_ends_while_its_data_set_is(work: str) -> None:
    assert process(ENDS.replace("WORK", WORK[work])) == "interrupted\n"


def test_a_process_ends_while_a_program_waits_in_a_thread() -> None:
    program = "threading.Thread(target=run, args=(jnp.float32(0),), daemon=True).start()"
    head, _ = ENDS.split("def interrupt")
    waits = f"{head}\n{program}\nentered.wait()\nprint('over')\n"
    assert process(waits.replace("WORK", "queue.Queue().get()")) == "over\n"


@pytest.fixture
def calls() -> Iterator[list[int]]:
    """A handler of SIGINT that only takes notes."""
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    yield seen
    signal.signal(signal.SIGINT, before)


def test_a_signal_is_handled_at_the_next_safe_place(calls: list[int]) -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert not calls
        interrupts.handle_delayed_interrupt()
        assert len(calls) == 1
        signal.raise_signal(signal.SIGINT)
        with interrupts.handle_interrupts_immediately():
            assert len(calls) == 2
            signal.raise_signal(signal.SIGINT)
            assert len(calls) == 3
        signal.raise_signal(signal.SIGINT)
        assert len(calls) == 3
    assert len(calls) == 4


def test_a_second_signal_does_not_wait(calls: list[int]) -> None:
    with Interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert len(calls) == 1
    assert len(calls) == 1


def test_other_threads_leave_signals_alone(calls: list[int]) -> None:
    handlers: list[object] = []

    def run() -> None:
        with Interrupts() as interrupts, interrupts.handle_interrupts_immediately():
            handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [before]
    assert not calls
