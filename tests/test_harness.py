from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.conftest import RunWithDevices
from tests.harness import TESTS, Golden, affordable_workers, device_flags


def golden_in(folder: Path, *, update: bool) -> Golden:
    return Golden(TESTS / "lowering" / "test_text.py", "test_one[a/b]", update, folder)


def test_golden_path_mirrors_the_test(tmp_path: Path) -> None:
    path = golden_in(tmp_path, update=False).path("second")
    assert path == tmp_path / "lowering" / "test_text" / "test_one-a-b-second.txt"


def test_golden_is_written_then_compared(tmp_path: Path) -> None:
    golden_in(tmp_path, update=True)("a\nb\n")
    golden_in(tmp_path, update=False)("a\nb")
    with pytest.raises(AssertionError, match=r"(?s)-b\n\+c\n.*--update-golden"):
        golden_in(tmp_path, update=False)("a\nc")


def test_golden_asks_for_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no golden file"):
        golden_in(tmp_path, update=False)("a")


def test_device_flags_replace_the_count_and_keep_the_rest() -> None:
    flags = "--xla_a=1 --xla_force_host_platform_device_count=8"
    assert device_flags(flags, 4) == "--xla_a=1 --xla_force_host_platform_device_count=4"


def test_run_with_devices_gives_that_many(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(4, "import jax\nprint(len(jax.devices()))") == "4\n"


def test_run_with_devices_shows_the_error(run_with_devices: RunWithDevices) -> None:
    with pytest.raises(AssertionError, match="the reason"):
        run_with_devices(1, "raise SystemExit('the reason')")


def test_there_are_as_many_workers_as_there_is_memory_for() -> None:
    assert affordable_workers(3, 1e-3) == 3
    assert affordable_workers(3, 1e9) == 1
    half = psutil.virtual_memory().available / 1e6 / 2.5
    assert affordable_workers(100, half) == 2
