"""Conformance facts about connection types and the executable cache, with whole programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import jax
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.config import DeviceConnectionType, IPUConfig
from ipujax.errors import ConfigError, ConnectionTypeError, IPUError
from tests.harness import ROOT
from tests.ipujax.feeding import compilations, executions, infeed, outfeed


def connect(connection: DeviceConnectionType, version: str = "ipu2") -> None:
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.device_connection.type = connection
    config.device_connection.version = version
    config.configure_ipu_system()


def square(x: jax.Array) -> jax.Array:
    return x * x


@pytest.mark.fact("connection.never_run")
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_never_compiles_and_refuses_to_run(engine: str) -> None:
    connect(DeviceConnectionType.NEVER)
    run = ipu.compile(square, engine=engine)
    x = np.float32([1, 2])
    assert run.lower(x).compile().as_text()
    for _ in range(2):
        with pytest.raises(ConnectionTypeError, match="configured for compilation only") as caught:
            run(x)
        assert isinstance(caught.value, IPUError)
    connect(DeviceConnectionType.ALWAYS)
    np.testing.assert_array_equal(run(x), [1, 4])


@pytest.mark.fact("connection.never_run")
def test_never_refuses_loops_before_they_read_anything() -> None:
    connect(DeviceConnectionType.NEVER)
    source, sink = infeed(list(np.float32([1, 2, 3]))), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(v)
        return v + x

    run = ipu.compile(lambda: ipu.loops.repeat(3, body, [0.0], source))
    with pytest.raises(ConnectionTypeError):
        run()
    assert sink.dequeue().shape == (0,)
    connect(DeviceConnectionType.ALWAYS)
    assert run() == 6


@pytest.mark.fact("connection.pre_compile_zeros")
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_pre_compile_gives_zeros(engine: str) -> None:
    connect(DeviceConnectionType.PRE_COMPILE)
    result = ipu.compile(square, engine=engine)(np.float32([1, 2]))
    np.testing.assert_array_equal(result, [0, 0])
    assert result.dtype == np.float32


# --- the executable cache -------------------------------------------------------------------------

PROGRAM = """
    import json, os
    import jax, numpy as np
    import ipujax as ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.device_connection.type = ipu.config.DeviceConnectionType[os.environ["CONNECTION"]]
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()

    def square(x):
        return x * x

    def with_host_operations(x):
        y = x * x
        with ipu.scopes.outside_compilation_scope():
            z = y * 2
        return z + 2

    def loop(x):
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        def body(x):
            queue.enqueue(x)
            return x + 1
        return ipu.loops.repeat(3, body, [x])

    x = np.float32(json.loads(os.environ["INPUT"]))
    with ipu.events.record() as trace:
        result = ipu.compile(globals()[os.environ["PROGRAM"]], engine=os.environ["ENGINE"])(x)
    compiled = sum(event.type.name == "COMPILE_BEGIN" for event in trace)
    print(json.dumps([np.asarray(result).tolist(), compiled]))
"""


def run_in_a_process(
    folder: Path,
    program: str,
    x: Any,
    connection: str = "ALWAYS",
    flags: str = "",
    engine: str = "auto",
) -> tuple[Any, int]:
    """The program's result, and how many programs its process compiled."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "TF_POPLAR_FLAGS": f"--executable_cache_path={folder} {flags}",
        "PROGRAM": program,
        "INPUT": json.dumps(x),
        "CONNECTION": connection,
        "ENGINE": engine,
    }
    ended = subprocess.run(
        [sys.executable, "-c", dedent(PROGRAM)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    result, compiled = json.loads(ended.stdout)
    return result, compiled


@pytest.mark.sampled(1)
@pytest.mark.fact("connection.cache_reuse")
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_the_second_process_compiles_nothing(tmp_path: Path, engine: str) -> None:
    folder = tmp_path / "new" / "cache"
    assert run_in_a_process(folder, "square", [1, 2], engine=engine) == ([1, 4], 1)
    assert folder.is_dir()
    assert run_in_a_process(folder, "square", [1, 2], engine=engine) == ([1, 4], 0)


@pytest.mark.exhaustive
@pytest.mark.fact("connection.cache_reuse")
def test_another_shape_and_another_program_are_compiled(tmp_path: Path) -> None:
    assert run_in_a_process(tmp_path, "loop", 1) == (4, 1)
    assert run_in_a_process(tmp_path, "loop", 1) == (4, 0)
    assert run_in_a_process(tmp_path, "square", 3) == (9, 1)


@pytest.mark.exhaustive
@pytest.mark.fact("connection.cache_outside")
def test_programs_with_host_operations_are_kept_too(tmp_path: Path) -> None:
    assert run_in_a_process(tmp_path, "with_host_operations", 1) == (4.0, 1)
    assert run_in_a_process(tmp_path, "with_host_operations", 1) == (4.0, 0)


@pytest.mark.fact("connection.pre_compile_zeros")
def test_pre_compile_fills_the_cache(tmp_path: Path) -> None:
    assert run_in_a_process(tmp_path, "square", [1, 2], "PRE_COMPILE") == ([0, 0], 1)
    assert run_in_a_process(tmp_path, "square", [1, 2]) == ([1, 4], 0)


@pytest.mark.fact("connection.cache_graphs")
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_the_same_program_twice_in_one_process(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'cache'}")
    x, counts = np.float32([1, 2]), []
    for _ in range(2):
        with ipu.events.record() as trace:
            fresh = ipu.compile(lambda x: square(x), engine=engine, name="square")
            np.testing.assert_array_equal(fresh(x), [1, 4])
        counts.append(compilations(trace))
        assert executions(trace) == 1
    assert counts == [1, 0]


def test_without_a_cache_each_program_is_compiled() -> None:
    with ipu.events.record() as trace:
        for _ in range(2):
            ipu.compile(lambda x: square(x), name="square")(np.float32(1))
    assert compilations(trace) == 2


KEYED = [
    "use_synthetic_data",
    "synthetic_data_categories=seed",
    "synthetic_data_categories=infeed --synthetic_data_initializer=3",
    "use_ipu_model",
    "while_loop_brute_force_max_trip_count=7",
    "fallback_scheduler",
    "allow_nans",
    "log_cycle_count=0",
    "sync_replica_start",
]
NOT_KEYED = ["max_compilation_threads=3", "show_progress_bar=false", "dump_schedule_as_dot"]


@pytest.mark.sampled(6)
@pytest.mark.fact("devices.flags_hash")
@pytest.mark.parametrize(
    ("flag", "compiled"),
    [*((flag, 1) for flag in KEYED), *((flag, 0) for flag in NOT_KEYED)],
    ids=lambda value: re.sub(r"\W+", "-", str(value)),
)
def test_flags_that_tell_executables_apart(
    tmp_path: Path, flag: str, compiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"--executable_cache_path={tmp_path}"
    for flags, expected in ((path, 1), (f"{path} --{flag}", compiled)):
        monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
        with ipu.events.record() as trace:
            ipu.compile(lambda x: square(x), name="square")(np.float32(1))
        assert compilations(trace) == expected


def test_another_host_operation_is_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path}")

    def factor(factor: float) -> tuple[float, int]:
        def program(x: jax.Array) -> jax.Array:
            with ipu.scopes.outside_compilation_scope():
                x = x * factor
            return x + 1

        with ipu.events.record() as trace:
            return float(ipu.compile(program)(np.float32(1))), compilations(trace)

    assert [factor(2.0), factor(3.0), factor(2.0)] == [(3, 1), (4, 1), (3, 0)]


# --- remote buffers -------------------------------------------------------------------------------


def offloading(offload: bool | None, **options: Any) -> Any:
    """A pipeline over two IPUs that may keep its optimizer's state in streaming memory."""

    def train(x: jax.Array) -> Any:
        return ipu.pipelining_ops.pipeline(
            [lambda v: v[0] @ v[0], lambda v, y: jax.numpy.sum((y @ v[1]) ** 2)],
            4,
            variables=(x, x + 1),
            outfeed_queue=outfeed(),
            optimizer_function=lambda loss, *_: ipu.pipelining_ops.OptimizerFunctionOutput(
                optax.adam(0.1), loss
            ),
            offload_weight_update_variables=offload,
            **options,
        )

    return ipu.compile(train).lower(np.eye(32, dtype=np.float32))


@pytest.mark.parametrize("kind", list(DeviceConnectionType))
@pytest.mark.parametrize("enabled", [False, True])
def test_offloading_needs_remote_buffers(
    kind: DeviceConnectionType, enabled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What the attached system has is known; of any other the configuration must say so.

    State is offloaded by default where it can be, and where it cannot, asking for it is disabled.
    """
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.device_connection.type = kind
    config.device_connection.version = "ipu2"
    config.device_connection.enable_remote_buffers = enabled
    config.configure_ipu_system()
    assert "store" not in offloading(False).as_text()
    if enabled or kind is DeviceConnectionType.ALWAYS:
        assert all("store" in offloading(each).as_text() for each in (None, True))
        return
    assert "store" not in offloading(None).as_text()
    assert "offload" not in caplog.text
    assert "store" not in offloading(True).as_text()
    assert "is to offload its optimizer's state, which is disabled" in caplog.text
    assert "enable_remote_buffers = True" in caplog.text
    message = rf"keeps values in streaming memory.* {kind.name}, and"
    with pytest.raises(ConfigError, match=message) as refused:
        offloading(True, offload_gradient_accumulation_buffers=True)
    assert "enable_remote_buffers = True" in str(refused.value)
