"""The virtual machine: which IPUs devices get, in which order, and when they attach."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ipujax.config import DeviceConnectionType, IPUConfig, SelectionOrder
from ipujax.errors import ConnectionTypeError, DeviceError
from ipujax.system import SYSTEM, find_machine, is_ipu_device_name, list_attached_processes
from ipujax.system.device_ids import position_of_each_shard
from ipujax.system.devices import DeviceSeed
from tests.harness import ROOT

COUNTS = st.integers(1, 16)


def configure(
    *counts: int,
    ids: list[int] | None = None,
    order: SelectionOrder = SelectionOrder.AUTO,
    connection: DeviceConnectionType = DeviceConnectionType.ALWAYS,
    version: str = "",
) -> None:
    config = IPUConfig()
    config.auto_select_ipus = list(counts)
    config.select_ipus = ids or []
    config.selection_order = order
    config.device_connection.type = connection
    config.device_connection.version = version
    config.configure_ipu_system()


def ids_of_all() -> list[int]:
    return [
        SYSTEM.device(f"/device:IPU:{i}").device_id
        for i in range(len(SYSTEM.copy_device_configs()))
    ]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ipujax"]


def test_the_machine_has_the_documented_groups():
    machine = find_machine()
    assert len(machine.devices) == 31
    members = {device.id: [ipu.index for ipu in device.ipus] for device in machine.devices}
    assert [members[id] for id in range(16)] == [[id] for id in range(16)]
    assert members[16] == [5, 7]
    assert members[19] == [2, 0]
    assert members[24] == [5, 7, 4, 6]
    assert members[25] == [3, 1, 2, 0]
    assert members[29] == [13, 15, 12, 14, 9, 11, 10, 8]
    assert members[30] == members[28] + members[29]
    assert machine.ipus[8].pci_domain == "0000:8b:00.0"


@pytest.mark.parametrize(
    ("count", "pod", "id", "ipus"),
    [
        (17, 64, 124, range(17)),  # of the first group of 32: ids 120 to 123 have 16
        (32, 64, 124, range(32)),
        (33, 64, 126, range(33)),
        (64, 64, 126, range(64)),
        (100, 128, 254, range(100)),
        (256, 256, 510, range(256)),
    ],
)
def test_more_than_sixteen_ipus_are_of_a_pod(count: int, pod: int, id: int, ipus: range):
    machine = find_machine(count)
    assert len(machine.ipus) == pod
    assert len(machine.devices) == 2 * pod - 1
    configure(count, order=SelectionOrder.ZIGZAG)
    device = SYSTEM.device()
    assert (device.device_id, device.ipus) == (id, tuple(ipus))
    used = {ipu.index for ipu in machine.devices[id].ipus}
    assert used.issuperset(device.ipus)


def test_devices_of_one_configuration_share_a_pod():
    configure(32, 16, 8, 1)
    assert ids_of_all() == [124, 122, 118, 56]
    used = [ipu for i in range(4) for ipu in SYSTEM.device(f"/device:IPU:{i}").ipus]
    assert sorted(used) == list(range(57))


def test_a_partition_limits_devices_and_has_ids_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "mine")
    assert find_machine().partition == "mine"
    configure(17)  # nobody said how large it is
    monkeypatch.setenv("IPUJAX_PARTITION_SIZE", "8")
    configure(ids=[12])
    assert SYSTEM.device().ipus == (0, 1, 3, 2)
    with pytest.raises(DeviceError, match=r"9 IPUs .* from 1 to 8, as partition 'mine'"):
        configure(9)
    with pytest.raises(DeviceError, match=r"no device with id 15; ids go from 0 to 14"):
        configure(ids=[15])
    monkeypatch.setenv("IPUJAX_PARTITION_SIZE", "12")
    with pytest.raises(DeviceError, match="a power of two"):
        configure(1)


@pytest.mark.parametrize(
    ("order", "positions"),
    [
        (SelectionOrder.ZIGZAG, [*range(16)]),
        (SelectionOrder.SNAKE, [0, 1, 3, 2, 4, 5, 7, 6, 8, 9, 11, 10, 12, 13, 15, 14]),
        (SelectionOrder.HOOF, [0, 2, 4, 6, 8, 10, 12, 14, 15, 13, 11, 9, 7, 5, 3, 1]),
    ],
)
def test_selection_orders_of_the_whole_machine(order: SelectionOrder, positions: list[int]):
    assert list(position_of_each_shard(16, order)) == positions


@given(COUNTS, st.sampled_from(SelectionOrder))
def test_an_order_is_a_permutation(count: int, order: SelectionOrder):
    assert sorted(position_of_each_shard(count, order)) == list(range(count))


def linked(a: int, b: int) -> bool:
    """Whether two positions of the ladder are neighbours, on a rung or along a rail."""
    return a // 2 == b // 2 or (abs(a - b) == 2)


@given(COUNTS.filter(lambda count: count % 2 == 0))
def test_snake_and_hoof_link_each_shard_to_the_next(count: int):
    for order in (SelectionOrder.SNAKE, SelectionOrder.HOOF):
        shards = position_of_each_shard(count, order)
        assert all(linked(a, b) for a, b in itertools.pairwise(shards))
    assert linked(shards[-1], shards[0])  # a hoof's ends share a rung


@pytest.mark.parametrize(
    ("counts", "ids"),
    [
        ([1], [0]),
        ([2], [16]),
        ([4], [24]),
        ([8], [28]),
        ([16], [30]),
        ([3], [24]),
        ([9], [30]),
        ([1, 1], [0, 1]),
        ([2, 2], [16, 17]),
        ([4, 4, 4, 4], [24, 25, 26, 27]),
        ([1, 2, 4], [0, 16, 26]),
        ([8, 1], [28, 8]),
        ([16, 4], [30, 24]),
    ],
)
def test_the_first_free_group_is_chosen(counts: list[int], ids: list[int]):
    configure(*counts)
    assert ids_of_all() == ids


@given(st.lists(COUNTS, min_size=1, max_size=6))
def test_devices_have_what_was_asked_for_and_share_nothing_while_there_is_room(counts: list[int]):
    configure(*counts)
    devices = [SYSTEM.device(f"IPU:{ordinal}") for ordinal in range(len(counts))]
    assert [device.num_ipus for device in devices] == counts
    for device in devices:
        assert len(set(device.ipus)) == device.num_ipus
    used = [ipu for device in devices for ipu in device.ipus]
    if set(counts) <= {1, 2}:  # six of them always fit
        assert len(set(used)) == len(used)


def test_shards_of_four_ipus_in_automatic_order():
    configure(4)
    assert SYSTEM.device().ipus == (5, 7, 6, 4)  # positions 0, 1, 3, 2 of the group


def test_a_count_that_is_no_power_of_two_takes_the_first_of_a_group():
    configure(3, order=SelectionOrder.ZIGZAG)
    assert SYSTEM.device().ipus == (5, 7, 4)


def test_select_ipus_takes_the_listed_devices():
    configure(ids=[24, 25], order=SelectionOrder.ZIGZAG)
    assert ids_of_all() == [24, 25]
    assert SYSTEM.device("/device:IPU:1").ipus == (3, 1, 2, 0)


NAMES = ["/device:IPU:0", "/job:localhost/replica:0/task:0/device:IPU:0", "IPU:0", "/ipu:0"]


@pytest.mark.parametrize("name", NAMES)
def test_device_names(name: str):
    assert is_ipu_device_name(name)
    assert SYSTEM.device(name).name == "/device:IPU:0"


@pytest.mark.parametrize("name", ["/cpu:0", "cpu", "/device:CPU:0", "IPU", "IPU:x", ""])
def test_names_of_other_devices(name: str):
    assert not is_ipu_device_name(name)
    with pytest.raises(DeviceError, match="no name of an IPU device"):
        SYSTEM.device(name)


@pytest.mark.fact("devices.ordinal_out_of_range")
def test_an_ordinal_that_is_not_configured():
    configure(1, 1)
    with pytest.raises(ValueError, match="no device with ordinal 2"):
        SYSTEM.device("/device:IPU:2")


def test_without_configuration_there_is_one_ipu(caplog: pytest.LogCaptureFixture):
    device = SYSTEM.device()
    assert (device.num_ipus, device.device_id) == (1, 0)
    assert messages(caplog) == []
    SYSTEM.attach(device)
    assert messages(caplog) == ["Device /device:IPU:0 attached to IPU: 0"]


def test_a_device_attaches_once_per_configuration(caplog: pytest.LogCaptureFixture):
    configure(4)
    SYSTEM.attach(SYSTEM.device())
    assert messages(caplog) == ["Device /device:IPU:0 attached to IPUs: 24"]
    configure(1, 2)
    assert messages(caplog)[1:] == [
        "Device /device:IPU:0 attached to IPU: 0",
        "Device /device:IPU:1 attached to IPUs: 16",
    ]
    SYSTEM.detach_all()
    SYSTEM.attach(SYSTEM.device())
    assert messages(caplog)[3:] == ["Device /device:IPU:0 attached to IPU: 0"]


def test_on_demand_attaches_at_the_first_run(caplog: pytest.LogCaptureFixture):
    configure(2, connection=DeviceConnectionType.ON_DEMAND)
    assert messages(caplog) == []
    SYSTEM.attach(SYSTEM.device())
    assert messages(caplog) == ["Device /device:IPU:0 attached to IPUs: 16"]


@pytest.mark.fact("connection.never_run")
def test_never_refuses_to_run(caplog: pytest.LogCaptureFixture):
    configure(1, connection=DeviceConnectionType.NEVER, version="ipu2")
    with pytest.raises(ConnectionTypeError, match="configured for compilation only"):
        SYSTEM.attach(SYSTEM.device())
    assert messages(caplog) == []


@pytest.mark.fact("connection.pre_compile_zeros")
def test_pre_compile_attaches_to_nothing(caplog: pytest.LogCaptureFixture):
    configure(1, connection=DeviceConnectionType.PRE_COMPILE, version="ipu2")
    SYSTEM.attach(SYSTEM.device())
    assert SYSTEM.device().only_compiles_programs
    assert messages(caplog) == []


def test_every_change_of_configuration_is_a_new_generation():
    seen = [SYSTEM.generation]
    for change in (configure, SYSTEM.reset_system, lambda: configure(2), lambda: configure(4)):
        change()
        seen.append(SYSTEM.generation)
    assert len(set(seen)) == len(seen)


def test_a_configuration_in_error_changes_nothing():
    configure(2)
    generation = SYSTEM.generation
    with pytest.raises(DeviceError):
        configure(257)
    assert (SYSTEM.generation, SYSTEM.device().num_ipus) == (generation, 2)


def test_seeds_belong_to_devices_until_they_are_configured_anew():
    configure(1, 1)
    assert SYSTEM.seed_of_device() == DeviceSeed(0)
    SYSTEM.set_seed(7, "/device:IPU:1", identical=True)
    assert SYSTEM.seed_of_device("IPU:1") == DeviceSeed(7, True)
    SYSTEM.set_seed(-1, "/device:IPU:1")
    assert SYSTEM.seed_of_device("IPU:1") == DeviceSeed(-1)
    assert SYSTEM.seed_of_device() == DeviceSeed(0)
    configure(1, 1)
    assert SYSTEM.seed_of_device("IPU:1") == DeviceSeed(1)


def test_each_run_has_a_seed_of_its_own():
    configure(1, 1)
    name = "/device:IPU:1"
    SYSTEM.set_seed(-2, name)
    top = 2**32 - 1
    assert [SYSTEM.take_next_seed(name).tolist() for _ in range(2)] == [
        [top - 1, top, 0, 1],
        [top - 1, top, 1, 1],
    ]
    SYSTEM.set_seed(5 << 32, name, identical=True)
    assert SYSTEM.take_next_seed(name).tolist() == [0, 5, 0, 0]
    assert SYSTEM.take_next_seed("/device:IPU:0").tolist() == [0, 0, 0, 1]


def test_ipus_of_all_devices_are_counted_in_a_row():
    configure(2, 4, 1)
    assert [SYSTEM.device(f"IPU:{i}").first for i in range(3)] == [0, 2, 6]


@pytest.fixture
def runtime(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("IPUJAX_RUNTIME_DIR", f"{tmp_path}/run")
    return f"{tmp_path}/run"


def test_other_processes_see_what_is_attached(runtime: str):
    configure(4, 1)
    (process,) = list_attached_processes()
    assert process.pid == os.getpid()
    assert [each.device_id for each in process.attachments] == [24, 0]
    assert process.attachments[0].ipus == (5, 7, 6, 4)
    SYSTEM.reset_system()
    assert list_attached_processes() == []
    assert os.listdir(runtime) == []


def test_what_dead_processes_left_is_removed(runtime: str):
    configure(1)
    path = f"{runtime}/{os.getpid()}.json"
    with open(path) as file:
        record = json.load(file)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    for name, change in {"1": {"pid": ended.pid}, "2": {"started": "0"}}.items():
        with open(f"{runtime}/{name}.json", "w") as file:
            json.dump({**record, **change}, file)
    with open(f"{runtime}/3.json", "w") as file:
        file.write("{")  # not a record at all: left alone
    assert [process.pid for process in list_attached_processes()] == [os.getpid()]
    assert sorted(os.listdir(runtime)) == sorted(["3.json", os.path.basename(path)])


def test_a_folder_that_cannot_be_written_stops_nothing(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with open(f"{tmp_path}/file", "w"):
        monkeypatch.setenv("IPUJAX_RUNTIME_DIR", f"{tmp_path}/file/below")
    configure(1)
    SYSTEM.reset_system()
    assert messages(caplog) == ["Device /device:IPU:0 attached to IPU: 0"]
    assert list_attached_processes() == []


PROGRAM = """
{setup}
from ipujax.config import IPUConfig
config = IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()
"""
LINE = "] Device /device:IPU:0 attached to IPUs: 24\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("setup", "level", "lines"),
    [
        ("", "", 1),
        ("", "off", 0),
        ("", "WARN", 0),
        ("", "info", 1),
        ("import logging; logging.basicConfig()", "", 1),
        ("import absl.logging; absl.logging.use_absl_handler()", "", 1),
        ("import logging; logging.getLogger('ipujax').setLevel('ERROR')", "", 0),
    ],
)
def test_the_line_is_on_standard_error_once(setup: str, level: str, lines: int):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(setup=setup)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "POPLAR_LOG_LEVEL": level},
    )
    assert done.stderr.count("attached to IPUs: 24") == lines
    if lines and "basicConfig" not in setup and "absl" not in setup:
        assert done.stderr.startswith("I")
        assert done.stderr.endswith(LINE)
