"""What is made up on the device is not transferred, in reports as in runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ipujax as ipu
from ipujax.report import Report
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.reporting import configured


def of_loop() -> Report:
    configured()
    source, sink = infeed([np.ones(1000, np.float32)]), outfeed()
    run = ipu.compile(lambda: ipu.loops.repeat(5, lambda x: sink.enqueue(x * 2), [], source))
    return run.lower().report()


def host_cycles(report: Report) -> int:
    return int(report.busy_cycles["host"].sum())


def test_queues_of_synthetic_data_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, tuple[int, int]] = {}
    for flags in (
        "",
        "--synthetic_data_categories=infeed",
        "--synthetic_data_categories=outfeed",
        "--synthetic_data_categories=parameters",
        "--use_synthetic_data",
    ):
        monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
        report = of_loop()
        found[flags.rpartition("=")[2]] = host_cycles(report), report.cycles
    both, cycles = found[""]
    assert found["infeed"] == found["outfeed"] == (both // 2, cycles - both // 2)
    assert found["parameters"] == (both, cycles)
    assert found["--use_synthetic_data"] == (0, cycles - both)


def test_rows_of_synthetic_tables_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    configured()
    table = ipu.embedding_ops.HostEmbedding("made_up", np.ones((64, 16), np.float32))

    def report() -> Report:
        found = ipu.compile(lambda i: table.lookup(i)).lower(np.arange(8, dtype=np.int32))
        return found.report()

    asked = report()
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=hostembedding")
    made_up = report()
    assert host_cycles(asked) > 0
    assert host_cycles(made_up) == 0
    assert made_up.cycles == asked.cycles - host_cycles(asked)
    assert any("table" in text for text in asked.assumptions)
    monkeypatch.delenv("TF_POPLAR_FLAGS")
    configured(experimental__enable_remote_buffer_embedding=True)
    remote = report()
    rows = 8 * 16 * 4 / 5e9 * remote.target.clock_hz
    assert remote.busy_cycles["remote"].sum() == math.ceil(rows)
    assert host_cycles(remote) == 0
    assert not remote.assumptions
    assert not made_up.assumptions
