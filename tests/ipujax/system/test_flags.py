"""`TF_POPLAR_FLAGS` and `POPLAR_LOG_LEVEL`."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import FlagError
from ipujax.system import executable_flags_key, log, read_poplar_flags
from ipujax.system.flags import PoplarFlags
from ipujax.utils import SyntheticDataCategory, running_on_ipu_model, use_synthetic_data_for

SetFlags = Callable[[str], None]


@pytest.fixture
def set_flags(monkeypatch: pytest.MonkeyPatch) -> SetFlags:
    return lambda text: monkeypatch.setenv("TF_POPLAR_FLAGS", text)


@pytest.mark.fact("devices.flags")
def test_names_and_defaults():
    assert dataclasses.asdict(read_poplar_flags()) == {
        "help": False,
        "use_synthetic_data": False,
        "synthetic_data_categories": (),
        "synthetic_data_initializer": "",
        "use_ipu_model": False,
        "log_cycle_count": -1,
        "while_loop_brute_force_max_trip_count": 128,
        "max_compilation_threads": -1,
        "max_infeed_threads": -1,
        "save_vertex_graph": "",
        "save_interval_report": "",
        "executable_cache_path": "",
        "dump_schedule_as_dot": False,
        "tensor_map_file_path": "",
        "null_data_feed": False,
        "fallback_scheduler": False,
        "show_progress_bar": "auto",
        "on_demand_device_poll_time": 1000,
        "on_demand_device_timeout": 3_600_000,
        "sync_replica_start": False,
        "enable_hlo_verifier": False,
        "allow_nans": False,
    }


@pytest.mark.fact("devices.flags")
def test_values_are_parsed_and_follow_the_environment(set_flags: SetFlags):
    set_flags("  --use_ipu_model --executable_cache_path=/a/b   --log_cycle_count=0 ")
    flags = read_poplar_flags()
    assert (flags.use_ipu_model, flags.executable_cache_path) == (True, "/a/b")
    assert flags.log_cycle_count == 0
    assert running_on_ipu_model()
    set_flags("--use_ipu_model=false --on_demand_device_poll_time=1")
    assert not running_on_ipu_model()
    assert read_poplar_flags().on_demand_device_poll_time == 100
    assert read_poplar_flags() is read_poplar_flags()


@pytest.mark.fact("devices.flags")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--use_syntetic_data", "unknown flag --use_syntetic_data; did you mean --use_synthetic"),
        ("--qqq", "unknown flag --qqq$"),
        ("--undefok=qqq --qqq", "unknown flag --undefok"),
        ("--flagfile=/x", "unknown flag --flagfile"),
        ("use_ipu_model", "'use_ipu_model', which is no flag"),
        ("--log_cycle_count=x", "log_cycle_count"),
        ("--log_cycle_count=-2", "must be the ordinal of a device, or -1"),
        ("--use_ipu_model=maybe", "use_ipu_model"),
        ("--show_progress_bar=maybe", "neither auto, true nor false"),
        ("--executable_cache_path='x", "cannot be split"),
    ],
)
def test_what_is_not_understood_is_an_error(text: str, message: str, set_flags: SetFlags):
    set_flags(text)
    with pytest.raises(FlagError, match=message):
        read_poplar_flags()
    with pytest.raises(FlagError, match=message):  # also the second time
        read_poplar_flags()


def test_help_is_printed_once(set_flags: SetFlags, capsys: pytest.CaptureFixture[str]):
    set_flags("--help --max_infeed_threads=3")
    assert read_poplar_flags().help
    assert read_poplar_flags().max_infeed_threads == 3
    printed = capsys.readouterr().out
    for field in dataclasses.fields(PoplarFlags):
        assert printed.count(f"--{field.name} ") == 1


KEYED = {
    "use_synthetic_data": "",
    "synthetic_data_categories": "=infeed",
    "synthetic_data_initializer": "=random --use_synthetic_data",
    "use_ipu_model": "",
    "while_loop_brute_force_max_trip_count": "=1",
    "fallback_scheduler": "",
    "allow_nans": "",
    "log_cycle_count": "=1",
    "sync_replica_start": "",
}


@pytest.mark.fact("devices.flags_hash")
def test_which_flags_tell_executables_apart(set_flags: SetFlags):
    plain = executable_flags_key()
    seen = {plain}
    for name, value in KEYED.items():
        set_flags(f"--{name}{value}")
        seen.add(executable_flags_key())
    assert len(seen) == 1 + len(KEYED)
    assert len(plain) == len(KEYED)
    set_flags("--enable_hlo_verifier --max_infeed_threads=1 --executable_cache_path=/a")
    assert executable_flags_key() == plain


@pytest.mark.fact("synthetic.flags")
@pytest.mark.parametrize("category", SyntheticDataCategory)
def test_synthetic_data_by_category(category: SyntheticDataCategory, set_flags: SetFlags):
    assert not use_synthetic_data_for(category)
    set_flags("--use_synthetic_data")
    assert use_synthetic_data_for(category)
    for name in (category.name.lower(), category.name):
        set_flags(f"--synthetic_data_categories={name}")
        assert [each for each in SyntheticDataCategory if use_synthetic_data_for(each)] == [
            category
        ]
    set_flags("--synthetic_data_categories=seed,infeed,outfeed,hostembedding,parameters")
    assert use_synthetic_data_for(category)


@pytest.mark.fact("synthetic.invalid")
def test_an_unknown_category_is_an_error(set_flags: SetFlags):
    set_flags("--synthetic_data_categories=FOO")
    with pytest.raises(FlagError, match="'FOO'; the categories are seed, infeed, outfeed"):
        read_poplar_flags()
    set_flags("--synthetic_data_categories=infed")
    with pytest.raises(FlagError, match="did you mean infeed"):
        read_poplar_flags()


@pytest.mark.fact("synthetic.initializer_alone")
def test_an_initializer_needs_synthetic_data(set_flags: SetFlags):
    set_flags("--synthetic_data_initializer=random")
    with pytest.raises(FlagError, match="needs synthetic data"):
        read_poplar_flags()


@pytest.mark.fact("synthetic.initializer_values")
@pytest.mark.parametrize("value", ["random", "uniform", "normal", "5", "-5"])
def test_initializers(value: str, set_flags: SetFlags):
    set_flags(f"--use_synthetic_data --synthetic_data_initializer={value}")
    assert read_poplar_flags().synthetic_data_initializer == value


@pytest.mark.fact("synthetic.initializer_values")
@pytest.mark.parametrize("value", ["gauss", "1.5", "--5", "-"])
def test_other_initializers_are_errors(value: str, set_flags: SetFlags):
    set_flags(f"--use_synthetic_data --synthetic_data_initializer={value}")
    with pytest.raises(FlagError, match="neither random, uniform, normal nor"):
        read_poplar_flags()


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("OFF", logging.CRITICAL + 1),
        ("ERR", logging.ERROR),
        ("warn", logging.WARNING),
        ("Info", logging.INFO),
        ("DEBUG", logging.DEBUG),
        ("TRACE", log.TRACE),
    ],
)
def test_log_levels(name: str, level: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POPLAR_LOG_LEVEL", name)
    assert log.get_logger().level == level
    monkeypatch.delenv("POPLAR_LOG_LEVEL")
    assert log.get_logger().level == logging.INFO


def test_an_unknown_log_level_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "LOUD")
    with pytest.raises(FlagError, match="LOUD is not a log level; use one of OFF, ERR"):
        log.get_logger()


def test_a_level_that_the_program_chose_is_kept(monkeypatch: pytest.MonkeyPatch):
    log.get_logger().setLevel(logging.ERROR)
    assert log.get_logger().level == logging.ERROR
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "DEBUG")
    assert log.get_logger().level == logging.DEBUG
    monkeypatch.delenv("POPLAR_LOG_LEVEL")
    log.get_logger()


@pytest.mark.parametrize("number", [7, -1])  # -1 is the default, written out
def test_a_flag_without_effect_says_so(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--max_infeed_threads={number}")
    read_poplar_flags()
    assert "--max_infeed_threads has no effect: each loop reads each infeed" in caplog.text


def test_null_data_feed_does_not_read_the_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--null_data_feed")
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([np.float32(5)])
    run = ipu.compile(lambda: ipu.loops.repeat(3, lambda v, x: v + x + 1, [0.0], infeed))
    assert run() == 3.0
