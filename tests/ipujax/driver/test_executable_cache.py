"""The cache of `--executable_cache_path`: the second process compiles nothing, and what is told."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.driver import executable_cache
from ipujax.ground import files
from tests.harness import ROOT
from tests.ipujax.feeding import compilations

PROGRAM = """
    import collections, json, sys
    import jax, jax.numpy as jnp, numpy as np, optax
    import ipujax as ipu
    from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline

    counts = collections.Counter()
    jax.monitoring.register_event_listener(lambda event, **_: counts.update([event]))
    kind, connection, engine = sys.argv[1:]
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.device_connection.type = ipu.config.DeviceConnectionType[connection]
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()
    x, w = np.ones((2, 3), np.float32), np.full((3, 3), 0.5, np.float32)
    source = ipu.ipu_infeed_queue.IPUInfeedQueue([x] * 8)
    sink = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def plain(w):
        return jnp.tanh(jnp.ones((2, 3)) @ w)

    def loop(w):
        def body(w, x):
            sink.enqueue((x @ w).sum())
            return w * 0.5
        return ipu.loops.repeat(4, body, [w], source)

    def trained(w):
        return pipeline(
            [lambda w, x: jnp.tanh(x @ w["a"]), lambda w, h: (h @ w["b"]).sum()],
            4, infeed_queue=source, outfeed_queue=sink, variables={"a": w, "b": w},
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.sgd(0.1), loss),
        )

    program = {"plain": plain, "loop": loop, "pipeline": trained}[kind]
    with ipu.events.record() as trace:
        result = ipu.compile(program, engine=engine)(w)
    told = sum(event.type.name == "COMPILE_BEGIN" for event in trace)
    count = lambda name: counts[f"/jax/compilation_cache/{name}"]
    total = sum(float(np.abs(leaf).sum()) for leaf in jax.tree.leaves(result))
    print(json.dumps([told, count("compile_requests_use_cache") - count("cache_hits"), total]))
"""


def run(folder: Path, kind: str, connection: str, engine: str) -> tuple[int, int, float]:
    """Programs that were told to be compiled, functions that XLA did compile, and a result."""
    ended = subprocess.run(
        [sys.executable, "-c", dedent(PROGRAM), kind, connection, engine],
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
            "TF_POPLAR_FLAGS": f"--executable_cache_path={folder}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    told, compiled, total = json.loads(ended.stdout)
    return told, compiled, total


@pytest.mark.sampled(0, 4)
@pytest.mark.fact("connection.cache_reuse", "connection.pre_compile_zeros")
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("connection", ["PRE_COMPILE", "ALWAYS"])
@pytest.mark.parametrize("kind", ["plain", "loop", "pipeline"])
def test_xla_compiles_nothing_in_the_second_process(
    kind: str, connection: str, engine: str, tmp_path: Path
) -> None:
    told, compiled, total = run(tmp_path, kind, connection, engine)
    assert told == 1
    assert compiled > 0
    assert (total == 0) == (connection == "PRE_COMPILE")
    told, compiled, total = run(tmp_path, kind, "ALWAYS", engine)
    assert (told, compiled) == (0, 0)
    assert total > 0


def test_kernels_that_are_gone_are_compiled_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path}")
    counts: list[int] = []
    for _ in range(3):
        with ipu.events.record() as trace:
            ipu.compile(lambda x: jax.numpy.tan(x) + 3, name="tan")(np.float32(1))
        counts.append(compilations(trace))
        if len(counts) == 1:
            for kernel in tmp_path.glob("jit*"):
                kernel.unlink()
    assert counts == [1, 1, 0]


@pytest.fixture
def fresh_warnings() -> Iterator[None]:
    """Has warnings that are given once in a process be given again."""
    executable_cache._warn_of_unwritable.cache_clear()
    yield
    executable_cache._warn_of_unwritable.cache_clear()


@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("below", ["cache", "deep/er/cache"])
def test_a_cache_that_cannot_be_made_is_a_warning(
    below: str,
    engine: str,
    tmp_path: Path,
    fresh_warnings: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / below
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={folder}")
    for number in (1, 2):
        run = ipu.compile(lambda x, n=number: x + n, engine=engine)
        assert run(np.float32(1)) == 1 + number
    (warning,) = [r.getMessage() for r in caplog.records if "are not kept" in r.getMessage()]
    assert f"{folder}, and the program goes on without: Not a directory" in warning
    assert "--executable_cache_path=FOLDER" in warning


@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache:UserWarning")
def test_a_full_disk_below_the_cache_is_a_warning(
    tmp_path: Path,
    fresh_warnings: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path}")
    monkeypatch.setattr(files.os, "fsync", refuse)
    monkeypatch.setattr(Path, "write_bytes", refuse)  # as XLA's cache writes
    assert ipu.compile(lambda x: x + 3)(np.float32(1)) == 4
    (warning,) = [r.getMessage() for r in caplog.records if "are not kept" in r.getMessage()]
    assert "No space left on device; make room there" in warning


def test_a_cache_that_the_program_chose_is_named_so(
    tmp_path: Path,
    fresh_warnings: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(executable_cache, "_chosen", None)  # it is for the process
    for chosen in (tmp_path / "file" / "x", f"{tmp_path}/with\0null"):
        executable_cache.set_cache_folder(chosen)
        assert ipu.compile(lambda x: x + 5)(np.float32(1)) == 6
    first, second = [r.getMessage() for r in caplog.records if "are not kept" in r.getMessage()]
    assert "enableExecutableCaching or cachePath" in first
    assert "null" in second


def test_an_output_folder_that_cannot_be_made_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    config = ipu.config.IPUConfig()
    config.serialization_output_folder = str(tmp_path / "file" / "x")
    config.configure_ipu_system()
    assert ipu.compile(lambda x: x + 7).lower(np.float32(1)).compile()(np.float32(1)) == 8
    assert "serialization_output_folder: [Errno 20] Not a directory" in caplog.text
