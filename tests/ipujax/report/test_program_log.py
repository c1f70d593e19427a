"""What flags and log levels ask for of programs."""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import FlagError
from ipujax.system import get_logger, get_plan_logger, read_poplar_flags
from tests.ipujax.reporting import configured

X = np.ones((64, 32), np.float32)


def product(x):
    return jnp.tanh(x @ x.T)


def test_cycles_of_each_run_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    configured()
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=0")
    run = ipu.compile(product)
    cycles = run.lower(X).report().cycles
    for times in (1, 2):
        run(X)
        assert caplog.text.count(f"`product`: {cycles:,} cycles (modelled)") == times
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=1")  # another device
    ipu.compile(product)(X)
    assert caplog.text.count("cycles (modelled)") == 2


def test_tile_mappings_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configured()
    folder = tmp_path / "new" / "maps"
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--tensor_map_file_path={folder}")
    compiled = ipu.compile(product, name="a/b c").lower(X).compile()
    (path,) = folder.iterdir()
    assert path.name == "a_b_c.tensor_map.json"
    whole = json.loads(path.read_text())
    (argument,) = (entry for entry in whole["values"] if entry["value"] == "%0")
    held = ipu.tile_mapping(compiled, "args[0]").bytes_per_tile
    assert argument["tiles"] == [[tile, held[tile]] for tile in np.flatnonzero(held)]
    assert sum(bytes_ for _, bytes_ in argument["tiles"]) == X.nbytes


def test_tile_mappings_that_cannot_be_written_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configured()
    (tmp_path / "file").touch()
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--tensor_map_file_path={tmp_path}/file/maps")
    ipu.compile(product).lower(X).compile()
    assert "no tile mapping of `product`, and the run goes on: [Errno 20]" in caplog.text


@pytest.mark.parametrize(
    ("poplar", "poplibs", "shown"),
    [
        ("INFO", "", ()),
        ("DEBUG", "", ("Program",)),
        ("DEBUG", "WARN", ("Program",)),
        ("DEBUG", "DEBUG", ("Program", "Plan")),
        ("WARN", "INFO", ("Plan",)),
        ("TRACE", "OFF", ("Program", "Tiles")),
    ],
)
def test_levels_have_content(
    poplar: str,
    poplibs: str,
    shown: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    configured()
    path = tmp_path / "log.txt"
    monkeypatch.setenv("POPLAR_LOG_LEVEL", poplar)
    monkeypatch.setenv("POPLIBS_LOG_LEVEL", poplibs)
    monkeypatch.setenv("POPLAR_LOG_DEST", str(path))
    ipu.compile(product)(X)
    text = path.read_text() if path.exists() else ""
    for word, sample in (
        ("Program", "Program `product`:\n"),
        ("Plan", "Plan of `product`: matmul 64 x 32 x 64 (dot_general float32[64,64]) on IPU 0: "),
        ("Tiles", 'Tiles of `product`: {"value": "%0"'),
    ):
        assert (sample in text) == (word in shown)


def test_the_log_goes_where_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for destination in ("stdout", "stderr"):
        monkeypatch.setenv("POPLAR_LOG_DEST", destination)
        get_logger().info("to %s", destination)
    out, err = capsys.readouterr()
    assert ("to stdout" in out, "to stderr" in err) == (True, True)
    assert "to stderr" not in out


def test_a_log_that_cannot_be_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POPLAR_LOG_DEST", str(tmp_path / "missing" / "log.txt"))
    with pytest.raises(FlagError, match=r"POPLAR_LOG_DEST=.* No such file.* use stdout, stderr"):
        get_logger().info("lost")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_lines_that_a_full_disk_does_not_take_go_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POPLAR_LOG_DEST", "/dev/full")
    get_logger().info("kept")
    assert capsys.readouterr().err.endswith("] kept\n")


def test_a_wrong_level_of_poplibs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLIBS_LOG_LEVEL", "LOUD")
    with pytest.raises(FlagError, match="POPLIBS_LOG_LEVEL=LOUD is not a log level"):
        get_plan_logger()


@pytest.mark.fact("devices.flags")
@pytest.mark.parametrize(
    "flag",
    [
        "add_all_reduce_copies",
        "force_replicated_mode",
        "force_replicated_mode=false",
        "noadd_all_reduce_copies",
        "save_oom_profiler=",
        "save_oom_profiler=/x",
        "dump_text_reports_to_stdio",
    ],
)
def test_deprecated_flags_are_taken(
    flag: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    plain = read_poplar_flags()
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--{flag}")
    assert read_poplar_flags() == plain
    name = flag.partition("=")[0].removeprefix("no")
    assert f"--{name} is deprecated and has no effect" in caplog.text
