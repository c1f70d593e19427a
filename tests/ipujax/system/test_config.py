"""Options, their types and errors; configuring the system; what is in force then."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest

from ipujax import config as config_module
from ipujax.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
    VerificationOptions,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from ipujax.errors import ConfigError, ConfigTypeError, NotConfiguredError, UnknownOptionError
from ipujax.system import (
    SYSTEM,
    ConfigNode,
    Option,
    config_key,
    floating_point_was_assigned,
    resolve_floating_point_behaviour,
    settings_of_reader,
    walk_options,
)
from ipujax.utils import SyntheticDataCategory

INTS = "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]"

# Fact -> option -> its default and type. Those without a fact are from the configuration chapter.
DEFAULTS: dict[str, dict[str, tuple[Any, str]]] = {
    "config.defaults_00": {
        "auto_select_ipus": ([], INTS),
        "select_ipus": ([], INTS),
        "allow_recompute": (False, "bool"),
        "selection_order": (SelectionOrder.AUTO, "SelectionOrder"),
        "serialization_output_folder": ("", "str"),
    },
    "config.defaults_01": {
        "compilation_poplar_options": ({}, "dict"),
        "gcl_poplar_options": ({}, "dict"),
        "convolutions.poplar_options": ({}, "dict"),
        "device_connection.version": ("", "str"),
        "device_connection.type": (DeviceConnectionType.ALWAYS, "DeviceConnectionType"),
    },
    "config.chapter_02": {
        "device_connection.enable_remote_buffers": (False, "bool"),
        "experimental.always_rearrange_copies_on_the_host": (False, "bool"),
        "experimental.enable_remote_buffer_embedding": (False, "bool"),
        "experimental.multi_replica_distribution.process_index": (0, "int"),
        "experimental.multi_replica_distribution.process_count": (0, "int"),
    },
    "config.defaults_03": {
        "floating_point_behaviour.inv": (False, "bool"),
        "floating_point_behaviour.div0": (False, "bool"),
        "floating_point_behaviour.oflo": (False, "bool"),
        "floating_point_behaviour.esr": (False, "bool"),
        "floating_point_behaviour.nanoo": (False, "bool"),
    },
    "config.chapter_04": {
        "floating_point_behaviour.set_all": (False, "bool"),
        "io_tiles.num_io_tiles": (0, "int"),
        "io_tiles.place_ops_on_io_tiles": (False, "bool"),
        "io_tiles.available_memory_proportion": (0.9, "float"),
        "ipu_model.compile_ipu_code": (True, "bool"),
    },
    "config.defaults_05": {
        "ipu_model.tiles_per_ipu": (0, "int"),
        "ipu_model.version": ("ipu2", "str"),
        "matmuls.clear_pass_type": (False, "bool"),
        "matmuls.poplar_options": ({}, "dict"),
        "norms.use_stable_statistics": (False, "bool"),
    },
    "config.defaults_06": {
        "norms.experimental.distributed_batch_norm_replica_group_size": (1, "int"),
        "optimizations.prefetch_data_streams": (True, "bool"),
        "optimizations.combine_embedding_lookups": (False, "bool"),
        "optimizations.combine_matmuls": (False, "bool"),
        "optimizations.enable_graph_outlining": (True, "bool"),
    },
    "config.chapter_07": {
        "optimizations.merge_infeed_io_copies": (False, "bool"),
        "optimizations.maximum_cross_replica_sum_buffer_size": (0, "int"),
        "optimizations.maximum_reduce_scatter_buffer_size": (0, "int"),
        "optimizations.maximum_inter_ipu_copies_buffer_size": (0, "int"),
        "optimizations.maximum_send_recv_cluster_size": (0, "int"),
    },
    "config.defaults_08": {
        "optimizations.minimum_remote_tensor_size": (128, "int"),
        "optimizations.merge_remote_buffers": (
            MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
            "MergeRemoteBuffersBehaviour",
        ),
        "optimizations.enable_gather_simplifier": (True, "bool"),
        "optimizations.triangular_solve_expander_block_size": (0, "int"),
        "optimizations.cholesky_block_size": (0, "int"),
    },
    "config.chapter_09": {
        "optimizations.enable_fast_math": (False, "bool"),
        "pooling.poplar_options": ({}, "dict"),
        "scheduling.algorithm": (SchedulingAlgorithm.CHOOSE_BEST, "SchedulingAlgorithm"),
        "scheduling.maximum_scheduler_lookahead_depth": (5, "int"),
        "scheduling.maximum_scheduler_search_space_size": (64, "int"),
    },
}
OPTIONS = [
    pytest.param(name, *expected, marks=pytest.mark.fact(fact), id=f"{fact}-{name}")
    for fact, options in DEFAULTS.items()
    for name, expected in options.items()
]


def get(config: ConfigNode, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def assign(config: ConfigNode, name: str, value: object) -> None:
    parent, _, last = name.rpartition(".")
    setattr(get(config, parent) if parent else config, last, value)


@pytest.mark.parametrize(("name", "default", "type_text"), OPTIONS)
def test_default_and_type_of_every_option(name: str, default: object, type_text: str):
    config = IPUConfig()
    assert get(config, name) == default
    metadata = config.get_attribute_metadata(name)
    assert (metadata.name, metadata.default, metadata.type) == (name, default, type_text)
    assert metadata.doc
    assert not metadata.deprecated
    with pytest.raises(ConfigTypeError, match=name.replace(".", r"\.")):
        assign(config, name, object())
    assert get(config, name) == default
    assign(config, name, metadata.default)


def test_there_are_no_other_options():
    declared = {name for name, member, _ in walk_options(IPUConfig()) if isinstance(member, Option)}
    assert declared == {name for options in DEFAULTS.values() for name in options}


@pytest.mark.fact("config.unknown_attr_no_suggest")
def test_nothing_is_suggested_for_a_name_like_no_other():
    with pytest.raises(UnknownOptionError) as error:
        get(IPUConfig(), "qqq")
    assert "did you mean" not in str(error.value)


def test_probing_for_an_attribute_works_as_for_any_object():
    assert not hasattr(IPUConfig(), "qqq")
    assert getattr(IPUConfig(), "_repr_html_", None) is None


@pytest.mark.fact("config.metadata")
def test_metadata():
    version = IPUConfig().get_attribute_metadata("ipu_model.version")
    assert (version.name, version.type, version.default) == ("ipu_model.version", "str", "ipu2")
    assert (version.deprecated, version.deprecated_msg) == (False, None)
    assert version.check_type("ipu1")
    with pytest.raises(TypeError, match=r"ipu_model\.version"):
        version.check_type(1)
    selection = IPUConfig().get_attribute_metadata("auto_select_ipus")
    assert (selection.type, selection.default, selection.deprecated) == (INTS, [], False)


def test_metadata_of_a_category_has_neither_type_nor_default():
    metadata = IPUConfig().get_attribute_metadata("norms.experimental")
    assert (metadata.name, metadata.type, metadata.default) == ("norms.experimental", None, None)
    with pytest.raises(TypeError, match="category"):
        metadata.check_type(1)


@pytest.mark.fact("config.metadata_private")
@pytest.mark.parametrize("name", ["_values", "__dict__", "nothing", "", "auto_select_ipus.real"])
def test_there_is_no_metadata_of_what_is_no_option(name: str):
    with pytest.raises(ValueError, match="could not get the metadata"):
        IPUConfig().get_attribute_metadata(name)


@pytest.mark.fact("config.auto_int")
def test_a_number_selects_one_device():
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    assert [SYSTEM.device().num_ipus] == [2]
    assert len(get_ipu_config()) == 1


@pytest.mark.fact("config.auto_list")
def test_a_list_selects_a_device_for_each_entry():
    config = IPUConfig()
    config.auto_select_ipus = [2, 3, 4, 5]
    config.configure_ipu_system()
    counts = [SYSTEM.device(f"/device:IPU:{ordinal}").num_ipus for ordinal in range(4)]
    assert counts == [2, 3, 4, 5]


@pytest.mark.fact("config.auto_bool")
def test_a_bool_selects_nothing():
    with pytest.raises(TypeError, match="auto_select_ipus"):
        IPUConfig().auto_select_ipus = True


def configured(**values: object) -> IPUConfig:
    """A configuration with values by full name, with `__` for the dots."""
    config = IPUConfig()
    for name, value in values.items():
        assign(config, name.replace("__", "."), value)
    return config


DISTRIBUTION = "experimental__multi_replica_distribution__process_"
GROUP_SIZE = "norms__experimental__distributed_batch_norm_replica_group_size"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            {"auto_select_ipus": [1, 1], "select_ipus": [1, 2]},
            "auto_select_ipus and select_ipus are both set",
            marks=pytest.mark.fact("config.auto_and_select"),
            id="config.auto_and_select",
        ),
        pytest.param(
            {"device_connection__type": DeviceConnectionType.PRE_COMPILE},
            r"device_connection\.version must be set",
            marks=pytest.mark.fact("config.pre_compile_needs_version"),
            id="config.pre_compile_needs_version-PRE_COMPILE",
        ),
        pytest.param(
            {"device_connection__type": DeviceConnectionType.NEVER},
            r"device_connection\.version must be set",
            marks=pytest.mark.fact("config.pre_compile_needs_version"),
            id="config.pre_compile_needs_version-NEVER",
        ),
        pytest.param(
            {f"{DISTRIBUTION}count": 1, f"{DISTRIBUTION}index": 5},
            r"must be in the range \[0, 1\)",
            marks=pytest.mark.fact("config.process_index_range"),
            id="config.process_index_range-5",
        ),
        pytest.param(
            {f"{DISTRIBUTION}count": 1, f"{DISTRIBUTION}index": -1},
            r"must be in the range \[0, 1\)",
            marks=pytest.mark.fact("config.process_index_range"),
            id="config.process_index_range--1",
        ),
        pytest.param(
            {GROUP_SIZE: 2, "io_tiles__num_io_tiles": 10},
            "not supported with I/O tiles",
            marks=pytest.mark.fact("config.dbn_io_tiles"),
            id="config.dbn_io_tiles",
        ),
        pytest.param({"io_tiles__place_ops_on_io_tiles": True}, "num_io_tiles", id="no_io_tiles"),
        pytest.param({f"{DISTRIBUTION}index": 1}, "no process to number", id="index_of_no_process"),
        pytest.param(
            {f"{DISTRIBUTION}count": 2, f"{DISTRIBUTION}index": 1},
            "process_count is 2, but 1 process runs this program",
            id="several_processes",
        ),
        pytest.param({"ipu_model__version": "ipu3"}, "one of ipu1, ipu2, ipu21", id="no_version"),
        pytest.param({"auto_select_ipus": 0}, "at least one IPU", id="no_ipus"),
        pytest.param({"auto_select_ipus": [1, 257]}, "from 1 to 256", id="too_many_ipus"),
        pytest.param({"select_ipus": [31]}, "from 0 to 30", id="no_such_id"),
        pytest.param(
            {"select_ipus": [4, 4]},
            "must be unique",
            marks=pytest.mark.fact("devices.legacy_double_select"),
            id="devices.legacy_double_select",
        ),
    ],
)
def test_contradictions_are_found_when_configuring(values: dict[str, object], message: str):
    config = configured(**values)
    with pytest.raises(ValueError, match=message):
        config.configure_ipu_system()
    assert not SYSTEM.is_configured


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            {"select_ipus": [1, 2]},
            "the IPU Model has none to name",
            marks=pytest.mark.fact("config.select_on_model"),
            id="config.select_on_model",
        ),
        pytest.param(
            {f"{DISTRIBUTION}count": 2},
            "the IPU Model cannot distribute replicas",
            marks=pytest.mark.fact("config.process_count_model"),
            id="config.process_count_model",
        ),
    ],
)
def test_the_ipu_model_cannot_do_all(
    values: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
):
    config = configured(**values)
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    with pytest.raises(ConfigError, match=message):
        config.configure_ipu_system()


def test_one_process_may_be_stated():
    configured(**{f"{DISTRIBUTION}count": 1}).configure_ipu_system()
    assert SYSTEM.is_configured


@pytest.mark.fact("config.fp_individual")
def test_floating_point_options_in_force():
    config = IPUConfig()
    assert resolve_floating_point_behaviour(config) == (False,) * 5
    config.floating_point_behaviour.inv = True
    assert resolve_floating_point_behaviour(config) == (True, False, False, False, False)
    config.floating_point_behaviour.inv = False
    config.floating_point_behaviour.oflo = True
    config.floating_point_behaviour.nanoo = True
    assert resolve_floating_point_behaviour(config) == (False, False, True, False, True)
    config.floating_point_behaviour.set_all = True
    assert resolve_floating_point_behaviour(config) == (True,) * 5


def test_assigning_a_floating_point_option_is_remembered_even_if_it_changes_nothing():
    config = IPUConfig()
    assert not floating_point_was_assigned(config)
    config.floating_point_behaviour.inv = False
    assert floating_point_was_assigned(config)
    assert config == IPUConfig()
    assert config_key(config) != config_key(IPUConfig())
    config.configure_ipu_system()
    assert floating_point_was_assigned(SYSTEM.device().config)
    assert floating_point_was_assigned(get_ipu_config()[0])


@pytest.mark.fact("config.enums")
def test_enumerations():
    connection = {member.name: member.value for member in DeviceConnectionType}
    assert connection == {"ALWAYS": 0, "ON_DEMAND": 1, "NEVER": 2, "PRE_COMPILE": 3}
    synthetic = {member.name: member.value for member in SyntheticDataCategory}
    assert synthetic == {
        "Seed": 0,
        "Infeed": 1,
        "Outfeed": 2,
        "HostEmbedding": 3,
        "Parameters": 4,
    }
    others = {
        SelectionOrder: "AUTO ZIGZAG SNAKE HOOF",
        ExecutionProfileType: "NO_PROFILE DEVICE_PROFILE IPU_PROFILE TILE_PROFILE",
        SchedulingAlgorithm: "CHOOSE_BEST CLUSTERING POST_ORDER LOOK_AHEAD SHORTEST_PATH",
        MergeRemoteBuffersBehaviour: "NO_MERGING MERGE IF_BENEFICIAL",
    }
    for enumeration, names in others.items():
        assert [member.name for member in enumeration] == names.split()
        assert [member.value for member in enumeration] == list(range(len(names.split())))


@pytest.mark.fact("devices.no_config_error")
def test_there_is_no_configuration_at_first():
    with pytest.raises(RuntimeError, match="no IPU devices are configured"):
        get_ipu_config()


@pytest.mark.fact("devices.get_config_len")
def test_get_ipu_config_gives_the_whole_configuration_for_each_device():
    config = configured(auto_select_ipus=[2, 4])
    configure_ipu_system(config)
    assert get_ipu_config() == [config, config]


@pytest.mark.fact("devices.reconfigure_auto_reset")
def test_configuring_again_replaces_the_configuration():
    configured(auto_select_ipus=[1, 1]).configure_ipu_system()
    second = configured(auto_select_ipus=[1, 2, 1])
    second.configure_ipu_system()
    assert get_ipu_config() == [second] * 3


def test_without_reset_only_the_same_may_be_configured_again():
    configure_ipu_system(configured(auto_select_ipus=2), reset_configuration=False)
    generation = SYSTEM.generation
    configure_ipu_system(configured(auto_select_ipus=2), reset_configuration=False)
    assert SYSTEM.generation == generation
    with pytest.raises(ConfigError, match="configured already"):
        configure_ipu_system(configured(auto_select_ipus=4), reset_configuration=False)


@pytest.mark.fact("devices.reset_empty_ok")
def test_nothing_configured_can_be_reset():
    reset_ipu_configuration()
    reset_ipu_configuration()
    with pytest.raises(NotConfiguredError):
        get_ipu_config()


def test_only_an_ipu_config_can_be_configured():
    with pytest.raises(TypeError, match="takes an IPUConfig, not dict"):
        configure_ipu_system(typing.cast(Any, {}))


def test_configuring_copies():
    config = configured(compilation_poplar_options={"a": "1"})
    config.configure_ipu_system()
    config.compilation_poplar_options["a"] = "2"
    config.auto_select_ipus = 8
    assert get_ipu_config()[0].compilation_poplar_options == {"a": "1"}
    assert SYSTEM.device().num_ipus == 1
    with pytest.raises(ConfigError, match="in use and cannot change"):
        SYSTEM.device().config.auto_select_ipus = 8
    copied = get_ipu_config()[0]
    copied.auto_select_ipus = 8  # a copy to change and configure
    copied.configure_ipu_system()
    assert SYSTEM.device().num_ipus == 8


def test_configurations_share_no_default():
    config = IPUConfig()
    config.matmuls.poplar_options["availableMemoryProportion"] = "0.1"
    metadata = config.get_attribute_metadata("matmuls.poplar_options")
    metadata.default["x"] = 1
    assert IPUConfig().matmuls.poplar_options == {}
    assert metadata.default == {}
    assert config != IPUConfig()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_are_equal_and_independent(duplicate: Any):
    config = configured(auto_select_ipus=[1, 2], io_tiles__num_io_tiles=32)
    other = duplicate(config)
    assert other == config
    assert config_key(other) == config_key(config)
    other.io_tiles.num_io_tiles = 64
    assert config.io_tiles.num_io_tiles == 32
    with pytest.raises(UnknownOptionError, match=r"did you mean 'io_tiles\.num_io_tiles'"):
        other.io_tiles.num_io_tile = 1


def test_repr_shows_every_option_and_the_defaults_of_those_that_differ():
    text = repr(configured(auto_select_ipus=4))
    assert "\n  auto_select_ipus = 4  # default: []\n" in text
    assert "\n  ipu_model\n    compile_ipu_code = True\n" in text
    assert text.count(" = ") == sum(len(options) for options in DEFAULTS.values())
    assert text.count("default:") == 1


def test_tab_completion_knows_options_and_categories():
    assert {"auto_select_ipus", "ipu_model", "configure_ipu_system"} <= set(dir(IPUConfig()))
    assert "version" in dir(IPUConfig().ipu_model)


def test_verification_options_make_keys_on_demand():
    options = VerificationOptions()
    options.inputs.key = 1
    options.infeeds["infeed"].key = 3
    options.input_parameters = KeyId(2)
    assert options.infeeds["infeed"] == KeyId(3, -1)
    assert VerificationOptions().infeeds == {}


def test_public_names_are_there():
    for name in config_module.__all__:
        assert hasattr(config_module, name)


@pytest.mark.parametrize("member", ["ON", "OFF"])
def test_stochastic_rounding_takes_the_enumeration_of_later_releases(member: str) -> None:
    behaviour = StochasticRoundingBehaviour[member]
    config = IPUConfig()
    config.floating_point_behaviour.esr = behaviour
    assert config.floating_point_behaviour.esr is (member == "ON")
    assert StochasticRoundingBehaviour.from_bool(member == "ON") is behaviour
    with pytest.raises(NotImplementedError, match="REPLICA_IDENTICAL_ONLY is not there"):
        config.floating_point_behaviour.esr = StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY
    assert config.floating_point_behaviour.esr is (member == "ON")
    with pytest.raises(TypeError, match="of type bool"):
        config.floating_point_behaviour.esr = 1


def test_the_scheduling_algorithms_are_two_behaviours() -> None:
    """POST_ORDER leaves the order alone; the others stand for one order, as their text says."""

    def settings(algorithm: SchedulingAlgorithm) -> dict[str, object]:
        config = IPUConfig()
        config.scheduling.algorithm = algorithm
        return settings_of_reader(config, "model")

    best = settings(SchedulingAlgorithm.CHOOSE_BEST)
    same = {a for a in SchedulingAlgorithm if settings(a) == best}
    assert set(SchedulingAlgorithm) - same == {SchedulingAlgorithm.POST_ORDER}
    assert "five are two here: POST_ORDER" in " ".join((SchedulingAlgorithm.__doc__ or "").split())
