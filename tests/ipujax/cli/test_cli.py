"""gc-info, gc-inventory and gc-monitor."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from ipujax.cli import info, inventory, monitor
from ipujax.config import IPUConfig
from ipujax.ground import format_boxed_table
from ipujax.system import find_machine, list_attached_processes
from tests.harness import ROOT

Output = pytest.CaptureFixture[str]

# The first lines, a pair and the last group of the documented listing.
HEAD = """\
Graphcore device listing:

-+- Id:  [0], type:      [PCIe], PCI Domain: [0000:1a:00.0]
-+- Id:  [1], type:      [PCIe], PCI Domain: [0000:1b:00.0]
"""
FIRST_PAIR = """\
-+- Id: [15], type:      [PCIe], PCI Domain: [0000:bb:00.0]
-+- Id: [16], type: [Multi IPU]
|--- PCIe Id:  [5], DNC Id: [0], PCI Domain: [0000:3e:00.0]
|--- PCIe Id:  [7], DNC Id: [1], PCI Domain: [0000:44:00.0]
-+- Id: [17], type: [Multi IPU]
"""
TAIL = """\
|--- PCIe Id: [13], DNC Id: [8], PCI Domain: [0000:b9:00.0]
|--- PCIe Id: [15], DNC Id: [9], PCI Domain: [0000:bb:00.0]
|--- PCIe Id: [12], DNC Id: [10], PCI Domain: [0000:b8:00.0]
|--- PCIe Id: [14], DNC Id: [11], PCI Domain: [0000:ba:00.0]
|--- PCIe Id:  [9], DNC Id: [12], PCI Domain: [0000:8c:00.0]
|--- PCIe Id: [11], DNC Id: [13], PCI Domain: [0000:8f:00.0]
|--- PCIe Id: [10], DNC Id: [14], PCI Domain: [0000:8e:00.0]
|--- PCIe Id:  [8], DNC Id: [15], PCI Domain: [0000:8b:00.0]
"""


def run(tool: object, *arguments: str, output: Output) -> str:
    assert tool.main(arguments) == 0  # type: ignore[attr-defined]
    return output.readouterr().out


def test_listing(capsys: Output):
    text = run(info, "-l", output=capsys)
    assert text.startswith(HEAD)
    assert FIRST_PAIR in text
    assert text.endswith(TAIL)
    assert len(text.splitlines()) == 2 + 31 + 4 * 16


POD_OF_FOUR = """\
Graphcore device listing:
Partition: p1 [active]
-+- Id: [0], target: [Fabric], IPU-M host: [ipu-machine-0], IPU#: [3]
-+- Id: [1], target: [Fabric], IPU-M host: [ipu-machine-0], IPU#: [2]
-+- Id: [2], target: [Fabric], IPU-M host: [ipu-machine-0], IPU#: [1]
-+- Id: [3], target: [Fabric], IPU-M host: [ipu-machine-0], IPU#: [0]
-+- Id: [4], target: [Multi IPU]
 |--- Id: [0], DNC Id: [0], IPU-M host: [ipu-machine-0], IPU#: [3]
 |--- Id: [1], DNC Id: [1], IPU-M host: [ipu-machine-0], IPU#: [2]
-+- Id: [5], target: [Multi IPU]
 |--- Id: [2], DNC Id: [0], IPU-M host: [ipu-machine-0], IPU#: [1]
 |--- Id: [3], DNC Id: [1], IPU-M host: [ipu-machine-0], IPU#: [0]
-+- Id: [6], target: [Multi IPU]
 |--- Id: [0], DNC Id: [0], IPU-M host: [ipu-machine-0], IPU#: [3]
 |--- Id: [1], DNC Id: [1], IPU-M host: [ipu-machine-0], IPU#: [2]
 |--- Id: [2], DNC Id: [2], IPU-M host: [ipu-machine-0], IPU#: [1]
 |--- Id: [3], DNC Id: [3], IPU-M host: [ipu-machine-0], IPU#: [0]
"""
"""As "Graphcore Command Line Tools" shows it, gc-info, but for the name of the host."""


def test_listing_of_a_partition(capsys: Output, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p1")
    monkeypatch.setenv("IPUJAX_PARTITION_SIZE", "4")
    assert run(info, "-l", output=capsys) == POD_OF_FOUR
    listing = json.loads(run(info, "-l", "--json", output=capsys))["devices"]
    assert listing[5]["ipus"][1] == {
        **{"pcie_id": 3, "dnc_id": 1},
        **{"ipu_machine": "ipu-machine-0", "ipu_number": 0},
    }
    text = run(inventory, output=capsys)
    assert text.startswith("gc-inventory | Partition: 'p1' has 7 devices\n")
    assert "  IPU-Machines: ipu-machine-0 IPU 3, ipu-machine-0 IPU 2\n" in text


def test_monitor_shows_the_pod_of_a_process(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
    monkeypatch.setenv("IPUJAX_RUNTIME_DIR", str(tmp_path))
    config = IPUConfig()
    config.auto_select_ipus = 64
    config.configure_ipu_system()
    text = run(monitor, output=capsys)
    assert text.startswith("gc-monitor | Partition: 'ipujax' has 64 virtual IPUs\n")
    assert text.count("| ipu-machine-") == 64


def test_listing_in_json(capsys: Output):
    listing = json.loads(run(info, "-l", "--json", output=capsys))["devices"]
    assert [device["id"] for device in listing] == list(range(31))
    assert listing[16]["ipus"][1] == {"pcie_id": 7, "dnc_id": 1, "pci_domain": "0000:44:00.0"}


@pytest.mark.parametrize("switch", ["-i", "-I", "--device-info"])
def test_device_info(switch: str, capsys: Output):
    lines = run(info, "-d", "0", switch, output=capsys).splitlines()
    assert lines[0] == "Device Info:"
    assert "  id: 0" in lines
    assert "  remote buffers supported: 1" in lines
    assert "  ipu temperature: N/A (simulated)" in lines
    attributes = json.loads(run(info, "-d", "24", switch, "--json", output=capsys))
    assert attributes["PCIe ids"] == "5, 7, 4, 6"


def test_single_answers(capsys: Output):
    assert run(info, "-d", "0", "--ipu-arch", output=capsys) == "ipu2\n"
    assert run(info, "-d", "0", "--tile-clock-speed", output=capsys) == "1330MHz\n"
    assert run(info, "-d", "24", "--ipu-count", output=capsys) == "4\n"
    answers = json.loads(run(info, "-d", "30", "--ipu-count", "--json", output=capsys))
    assert answers == {"ipu_count": 16}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "31", "-i"], "no device with id 31; ids go from 0 to 30"),
        (["-d", "-1", "-i"], "no device with id -1"),
        (["-d", "x", "-i"], "invalid int value"),
        (["-i"], "which device"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys: Output):
    with pytest.raises(SystemExit) as error:
        info.main(arguments)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_nothing_asked_for_is_answered_with_help(capsys: Output):
    assert "usage: gc-info" in run(info, output=capsys)


def test_inventory(capsys: Output):
    text = run(inventory, output=capsys)
    assert text.count("target: VirtualIPU (model of ipu2)\n") == len(find_machine().devices)
    devices = json.loads(run(inventory, "--json", output=capsys))["devices"]
    assert [device["number of IPUs"] for device in devices].count("4") == 4


def test_monitor_shows_who_is_attached(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
    monkeypatch.setenv("IPUJAX_RUNTIME_DIR", str(tmp_path))
    assert "No process of this user is attached." in run(monitor, output=capsys)
    config = IPUConfig()
    config.auto_select_ipus = [2, 1]
    config.configure_ipu_system()
    lines = run(monitor, output=capsys).splitlines()
    assert lines[0] == "gc-monitor | Partition: 'ipujax' has 16 virtual IPUs"
    mine = [line.split("|") for line in lines if f" {os.getpid()} " in line]
    assert [row[5].strip() for row in mine] == ["5", "7", "0"]
    assert [row[6].strip() for row in mine] == ["1330MHz"] * 3
    edges = {len(line) for line in lines if line.startswith(("+", "|"))}
    assert len(edges) == 2  # two tables, each with a straight edge
    (process,) = json.loads(run(monitor, "--json", output=capsys))["processes"]
    assert process["pid"] == os.getpid()
    assert process["attachments"][0]["device_id"] == 16
    assert f"attached processes: {os.getpid()}" in run(info, "-d", "24", "-i", output=capsys)


def test_monitor_sees_other_processes(tmp_path: pathlib.Path):
    program = (
        "from ipujax.config import IPUConfig; IPUConfig().configure_ipu_system(); "
        "print('ready', flush=True); input()"
    )
    environment = {**os.environ, "IPUJAX_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("IPUJAX_RUNTIME_DIR", str(tmp_path))
            assert [each.pid for each in list_attached_processes()] == [other.pid]
        other.communicate("\n")
    assert list(tmp_path.iterdir()) == []  # it took its file away when it ended


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (42.9, "42s"), (544, "9m4s"), (3780, "1h3m"), (172_800, "2d0h"), (-1, "0s")],
)
def test_ages(seconds: float, text: str):
    assert monitor.format_age(seconds) == text


def test_boxes():
    rows = format_boxed_table(("a", "b"), [[("1", "2"), ("333", "4")], [("5", "6")]], [("both", 2)])
    assert "\n".join(rows) == (
        "+---------+\n"
        "| both    |\n"
        "+-----+---+\n"
        "| a   | b |\n"
        "+-----+---+\n"
        "| 1   | 2 |\n"
        "| 333 | 4 |\n"
        "+-----+---+\n"
        "| 5   | 6 |\n"
        "+-----+---+"
    )


@pytest.mark.parametrize(
    "command", ["info --help", "info -l", "inventory --help", "monitor --help", "monitor"]
)
def test_tools_start_without_jax(command: str):
    tool, *arguments = command.split()
    program = f"""
import sys
from ipujax.cli import {tool}
try:
    {tool}.main({arguments!r})
except SystemExit as ended:
    assert ended.code == 0
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
