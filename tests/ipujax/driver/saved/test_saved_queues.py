"""Saved loops: the queues that they need, and what is said of those that do not fit."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.driver import Executable
from ipujax.errors import ConfigTypeError, ExecutableError, OutOfRangeError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from tests.conftest import RunWithDevices
from tests.ipujax.feeding import LAST, configure, infeed, outfeed
from tests.ipujax.saving import ENGINES, again, compiled, same

f32 = np.float32


def elements() -> Any:
    return ({"x": np.full(3, k, f32), "y": np.int32(k)} for k in itertools.count())


def loop(
    engine: str = "auto", count: int = 5
) -> tuple[Executable, IPUInfeedQueue, IPUOutfeedQueue]:
    """A loop over dicts, with what it sends in a tuple."""
    source, sink = infeed(elements), outfeed()

    def body(total: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        sink.enqueue((total, {"y": y + 1}))
        return total + x * y

    def program(total: jax.Array) -> Any:
        return ipu.loops.repeat(5, body, [total], source)

    return compiled(program, np.zeros(3, f32), engine=engine), source, sink


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ENGINES)
def test_another_process_gives_its_own_queues(
    engine: str, tmp_path: Path, run_with_devices: RunWithDevices
) -> None:
    executable, source, sink = loop(engine)
    executable.save(tmp_path / "program.ipujax")
    wanted, sent = executable(np.zeros(3, f32)), sink.dequeue()
    told = run_with_devices(
        1,
        f"""
        import itertools, json
        import numpy as np
        import ipujax as ipu

        elements = (
            {{"x": np.full(3, k, np.float32), "y": np.int32(k)}} for k in itertools.count()
        )
        source = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
        sink = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        queues = {{"{source.name}": source, "{sink.name}": sink}}
        loaded = ipu.load_executable("program.ipujax", queues=queues)
        assert sink.dequeue()[0].shape == (0, 3)
        result = loaded(np.zeros(3, np.float32))
        total, rest = sink.dequeue()
        print(json.dumps([result.tolist(), total.tolist(), rest["y"].tolist()]))
        """,
    )
    result, total, y = json.loads(told)
    np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(total, sent[0])
    np.testing.assert_array_equal(y, sent[1]["y"])


@pytest.mark.parametrize("engine", ENGINES)
def test_runtime_trip_counts_and_while_loops(engine: str, tmp_path: Path) -> None:
    sink = outfeed()

    def program(n: jax.Array, x: jax.Array) -> Any:
        def body(x: jax.Array) -> jax.Array:
            sink.enqueue(x)
            return x * 2

        x = ipu.loops.repeat(n, body, [x])
        return ipu.loops.while_loop(lambda x: x < 100, lambda x: x + 30, [x])

    executable = compiled(program, np.int32(1), f32(1), engine=engine)
    loaded = again(executable, tmp_path, **{sink.name: sink})
    for n in (0, 3):
        same(loaded(np.int32(n), f32(1)), executable(np.int32(n), f32(1)))
    np.testing.assert_array_equal(sink.dequeue(), [1, 2, 4] * 2)


def test_the_mode_is_that_of_the_queue_given(tmp_path: Path) -> None:
    executable, source, sink = loop()
    last = outfeed(LAST)
    loaded = again(executable, tmp_path, **{source.name: infeed(elements), sink.name: last})
    loaded(np.zeros(3, f32))
    assert last.dequeue()[1]["y"] == 5


def test_the_end_of_a_data_set_tells_what_was_carried(tmp_path: Path) -> None:
    executable, source, sink = loop()
    short = infeed(list(itertools.islice(elements(), 3)))
    loaded = again(executable, tmp_path, **{source.name: short, sink.name: sink})
    with pytest.raises(OutOfRangeError) as caught:
        loaded(np.zeros(3, f32))
    (carried,) = caught.value.carried
    np.testing.assert_array_equal(carried, [5, 5, 5])
    assert (caught.value.requested, caught.value.available) == (5, 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_replicas_have_their_own_elements(engine: str, tmp_path: Path) -> None:
    configure(2)
    source, sink = infeed(lambda: iter(np.arange(100, dtype=f32))), outfeed()

    def body(total: jax.Array, x: jax.Array) -> jax.Array:
        total = total + ipu.cross_replica_ops.cross_replica_sum(x)
        sink.enqueue(total + ipu.replication_ops.replication_index())
        return total

    def program(total: jax.Array) -> jax.Array:
        return ipu.loops.repeat(3, body, [total], source)

    executable = compiled(program, f32(0), engine=engine)
    other, own = infeed(lambda: iter(np.arange(100, dtype=f32))), outfeed()
    loaded = again(executable, tmp_path, **{source.name: other, sink.name: own})
    assert own.dequeue().shape == (0, 2)
    same(loaded(f32(0)), executable(f32(0)))
    np.testing.assert_array_equal(own.dequeue(), sink.dequeue())


# --- queues that do not fit -----------------------------------------------------------------------


def wrong_queues(source: str, sink: str) -> dict[str, tuple[dict[str, Any], str]]:
    """What may be given instead, and what is said."""
    good, out = infeed(elements), outfeed()
    keys = infeed([{"x": np.zeros(3, f32), "z": np.int32(1)}])
    shape = infeed([{"x": np.zeros(4, f32), "y": np.int32(1)}])
    dtype = infeed([{"x": np.zeros(3, np.float16), "y": np.int32(1)}])
    device = outfeed(device_ordinal=1)
    return {
        "none": ({}, f"`{source}`, `{sink}` not given"),
        "one": ({source: good}, f"`{sink}` not given"),
        "more": ({source: good, sink: out, "other": outfeed()}, "does not know `other`"),
        "kind": ({source: out, sink: good}, f"for `{source}` is a IPUOutfeedQueue"),
        "type": ({source: [1, 2], sink: out}, f"for `{source}` is a list"),
        "keys": ({source: keys, sink: out}, r"has elements \{'x': float32\[3\], 'z': int32\[\]\}"),
        "shape": ({source: shape, sink: out}, r"has elements \{'x': float32\[4\], 'y'"),
        "dtype": ({source: dtype, sink: out}, r"has elements \{'x': float16\[3\], 'y'"),
        "device": ({source: good, sink: device}, "belongs to /device:IPU:1"),
    }


def test_queues_that_do_not_fit(tmp_path: Path) -> None:
    executable, source, sink = loop()
    executable.save(tmp_path / "a.ipujax")
    needs = (
        rf"needs:\n    infeed `{source.name}` of \{{'x': float32\[3\], 'y': int32\[\]\}}\n"
        rf"    outfeed `{sink.name}` of \(float32\[3\], \{{'y': int32\[\]\}}\)"
    )
    for queues, said in wrong_queues(source.name, sink.name).values():
        with pytest.raises(ExecutableError, match=rf"(?s){said}.*{needs}"):
            ipu.load_executable(tmp_path / "a.ipujax", queues)
    with pytest.raises(ConfigTypeError, match="a dict from names to queues"):
        ipu.load_executable(tmp_path / "a.ipujax", [source])  # pyright: ignore[reportArgumentType]


def test_one_queue_for_two(tmp_path: Path) -> None:
    first, second = outfeed(), outfeed()

    def program(x: jax.Array) -> jax.Array:
        first.enqueue(x)
        second.enqueue(x)
        return x

    executable = compiled(program, f32(1))
    with pytest.raises(ExecutableError, match="is given for two queues"):
        again(executable, tmp_path, **{first.name: first, second.name: first})


def test_a_program_without_queues_takes_none(tmp_path: Path) -> None:
    executable = compiled(lambda x: x + 1, f32(1))
    with pytest.raises(ExecutableError, match=r"does not know `q`; it needs: none"):
        again(executable, tmp_path, q=outfeed())
