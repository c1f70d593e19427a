"""The functions of `utils` that configured the original before `IPUConfig`."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from ipujax import config, utils
from ipujax.errors import ConfigError, ConfigTypeError
from ipujax.system import older_options
from tests.harness import ROOT

MIGRATION = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)\((\w+)\)` \| `([\w.]+)` \|", MIGRATION, re.MULTILINE)
FLAGS = [row for row in ROWS if "floating_point" in row[2]]
OTHER_VALUES: dict[str, Any] = {
    "num_ipus": 4,
    "indices": [24, 25],
    "process_count": 3,
    "process_index": 2,
    "num_io_tiles": 32,
    "io_tile_available_memory_proportion": 0.5,
    "connection_type": config.DeviceConnectionType.NEVER,
    "ipu_version": "ipu1",
    "ipu_model_version": "ipu21",
    "tiles_per_ipu": 100,
    "output_folder": "programs",
    "experimental_distributed_batch_norm_replica_group_size": 2,
    "merge_remote_buffers": config.MergeRemoteBuffersBehaviour.MERGE,
}


def value_of(opts: Any, path: str) -> Any:
    for name in path.split("."):
        opts = getattr(opts, name)
    return opts


def call(function: str, argument: str, value: Any) -> Any:
    """The options after a call with one argument besides those that the function must have."""
    own = getattr(utils, function)
    needed = {
        name: OTHER_VALUES[name]
        for name, parameter in inspect.signature(own).parameters.items()
        if parameter.default is parameter.empty and name not in ("opts", argument)
    }
    return own(utils.create_ipu_config(), **needed, **{argument: value})


@pytest.mark.parametrize(("function", "argument", "path"), ROWS)
def test_each_argument_sets_its_attribute(function: str, argument: str, path: str) -> None:
    if argument.endswith("_options"):
        value: Any = {"availableMemoryProportion": "0.5"}
    elif argument in OTHER_VALUES:
        value = OTHER_VALUES[argument]
    else:
        value = not value_of(config.IPUConfig(), path)
    opts = call(function, argument, value)
    assert isinstance(opts, config.IPUConfig)
    assert value_of(opts, path) == value


def test_what_creates_options_and_what_optimizes_them() -> None:
    opts = utils.create_ipu_config(
        disable_graph_outlining=True,
        selection_order=utils.SelectionOrder.SNAKE,
        max_scheduler_lookahead_depth=7,
        scheduler_selection=utils.SchedulingAlgorithm.CLUSTERING,
        max_inter_ipu_copies_buffer_size=5,
    )
    assert not opts.optimizations.enable_graph_outlining
    assert opts.selection_order is config.SelectionOrder.SNAKE
    assert opts.scheduling.maximum_scheduler_lookahead_depth == 7
    assert opts.scheduling.algorithm is config.SchedulingAlgorithm.CLUSTERING
    assert opts.optimizations.maximum_inter_ipu_copies_buffer_size == 5
    same = utils.set_optimization_options(opts, combine_matmuls=True, gather_simplifier=False)
    assert same is opts
    assert opts.optimizations.combine_matmuls
    assert not opts.optimizations.enable_gather_simplifier
    no_merging = config.MergeRemoteBuffersBehaviour.NO_MERGING
    assert opts.optimizations.merge_remote_buffers is no_merging
    assert opts.optimizations.maximum_inter_ipu_copies_buffer_size == 0  # which it sets as well


def test_floating_point_options_are_on_unless_they_are_switched_off() -> None:
    opts = utils.set_floating_point_behaviour_options(utils.create_ipu_config(), esr=False)
    behaviour = opts.floating_point_behaviour
    found = (behaviour.inv, behaviour.div0, behaviour.oflo, behaviour.esr, behaviour.nanoo)
    assert found == (True, True, True, False, True)
    assert len(FLAGS) == 5


def test_such_options_configure_a_system() -> None:
    opts = utils.create_ipu_config()
    opts = utils.set_ipu_model_options(opts, tiles_per_ipu=None, ipu_model_version="ipu21")
    opts = utils.set_verification_options(
        utils.set_transfer_options(opts, True), utils.VerificationOptions()
    )
    opts = utils.auto_select_ipus(opts, num_ipus=2)
    utils.configure_ipu_system(opts)
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 2
    assert config.get_ipu_config()[0].ipu_model.version == "ipu21"


def test_the_log_names_what_replaced_a_function_once(caplog: pytest.LogCaptureFixture) -> None:
    fresh = older_options._deprecated("`a.b`")(utils.set_gcl_options)  # pyright: ignore[reportPrivateUsage]
    for _ in range(2):
        fresh(utils.create_ipu_config(), {})
    told = [r.getMessage() for r in caplog.records if "`a.b`" in r.getMessage()]
    assert told == ["utils.set_gcl_options is deprecated; use `a.b`"]


def test_arguments_without_effect_say_so(caplog: pytest.LogCaptureFixture) -> None:
    opts = utils.create_ipu_config(
        profiling=True, report_every_nth_execution=3, retain_control_dependencies=True
    )
    utils.set_report_options(opts, graph_options={"a": "b"})
    told = " ".join(record.getMessage() for record in caplog.records)
    for argument in ("profiling", "report_every_nth_execution", "graph_options"):
        assert f"({argument}=) has no effect" in told
    assert "(retain_control_dependencies=) has no effect: functions of JAX have no" in told
    assert "(max_report_size=)" not in told


def test_events_hold_no_reports() -> None:
    for name in ("compile_reports", "execute_reports", "poplar_serialized_graphs"):
        assert getattr(utils, f"extract_{name}")([]) == []


@pytest.mark.fact("devices.legacy_double_select")
@pytest.mark.fact("devices.legacy_gcl_type")
def test_wrong_values_are_errors() -> None:
    opts = utils.create_ipu_config()
    with pytest.raises(ConfigError, match="unique"):
        utils.select_ipus(opts, [4, 4])
    wrong: Any = 3
    for call in (
        lambda: utils.set_gcl_options(opts, wrong),
        lambda: utils.set_gcl_options(opts, []),  # pyright: ignore[reportArgumentType]
        lambda: utils.auto_select_ipus(wrong, 1),
        lambda: utils.set_matmul_options(opts, clear_pass_type=wrong),
        lambda: utils.create_ipu_config(disable_graph_outlining=wrong),
        lambda: utils.set_verification_options(opts, wrong),
        lambda: utils.extract_compile_reports(wrong),
    ):
        with pytest.raises(ConfigTypeError):
            call()
