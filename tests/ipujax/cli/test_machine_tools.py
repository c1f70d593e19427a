"""The gc tools that test the machine: their numbers, by hand from public ones, and their errors."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from ipujax.cli import (
    docker,
    exchangetest,
    hosttraffictest,
    iputraffictest,
    links,
    memorytest,
    powertest,
    reset,
)
from ipujax.config import IPUConfig
from tests.harness import ROOT

Output = pytest.CaptureFixture[str]
CLOCK = 1.33e9
MODELLED = "Modelled, not measured"


def answer(tool: object, *arguments: str, output: Output) -> dict[str, Any]:
    """What a tool prints as JSON, after a look at its text."""
    assert tool.main(arguments) == 0  # type: ignore[attr-defined]
    assert output.readouterr().out.splitlines()[-1].startswith(MODELLED)
    assert tool.main([*arguments, "-j"]) == 0  # type: ignore[attr-defined]
    data = json.loads(output.readouterr().out)
    assert data.pop("source").startswith(MODELLED)
    return data


def refuse(tool: object, *arguments: str, output: Output) -> str:
    with pytest.raises(SystemExit) as ended:
        tool.main(arguments)  # type: ignore[attr-defined]
    assert ended.value.code == 2
    return output.readouterr().err


def test_links_of_sixteen_ipus(capsys: Output):
    """The ladder of `gc-info -l`: 8 rungs of pairs, and 7 steps along each of two rails."""
    data = answer(links, output=capsys)
    assert data["num ipus"] == "16"
    assert data["overall result"] == "passed"
    found = {(link["from pcie id"], link["to pcie id"]): link for link in data["ipu to ipu"]}
    assert len(found) == 8 + 2 * 7
    assert found["5", "7"]["gbytes_per_second_each_way"] == "26.4563"  # 2 links of 13.2 GB/s
    assert found["5", "4"]["gbytes_per_second_each_way"] == "26.4563"  # as many
    assert ("5", "6") not in found


@pytest.mark.parametrize(
    ("ipus", "count"),
    [(1, 0), (2, 1), (32, 16 + 30), (64, 32 + 64), (128, 2 * 96 + 64), (256, 4 * 96 + 4 * 64)],
)
def test_links_of_pods(ipus: int, count: int, capsys: Output, monkeypatch: pytest.MonkeyPatch):
    """A rack has 32 rungs and two rails that are rings; IPUs of two racks meet over gateways."""
    monkeypatch.setenv("IPUJAX_PARTITION_SIZE", str(ipus))
    data = answer(links, output=capsys)
    assert len(data["ipu to ipu"]) == count
    kinds = [link["kind"] for link in data["ipu to ipu"]]
    assert kinds.count("neighbour") == ipus // 2


def test_traffic_between_ipus(capsys: Output):
    pair = answer(iputraffictest, "--device0", "5", "--device1", "7", output=capsys)["tile_to_tile"]
    assert pair["kbytes_transferred"] == "4096000"  # as the original says of 1000 iterations
    # Each way 2 MiB at 26.5 GB/s; twice 40 ns x 2 and 100 cycles of sync; 2066 cycles of set-up.
    seconds = 1000 * (2**21 / (423.3e9 / 16) + (100 + 2 * 40 + 2066) / CLOCK)
    assert float(pair["duration_sec"]) == pytest.approx(seconds, rel=1e-3)
    assert float(pair["gbps"]) == pytest.approx(4096e6 * 1.024 * 8 / 1e9 / seconds, rel=1e-3)
    # What the manual of the original shows of an IPU-M2000.
    assert float(pair["gbps"]) == pytest.approx(423.312, rel=0.03)
    assert float(pair["duration_sec"]) == pytest.approx(0.079266, rel=0.03)
    far = answer(iputraffictest, "--device0", "5", "--device1", "8", output=capsys)["tile_to_tile"]
    assert far["hops"] == "8"
    assert float(far["gbps"]) < float(pair["gbps"])
    all_links = answer(iputraffictest, "--all-links", "-i", "1", output=capsys)["tile_to_tile"]
    assert len(all_links) == 22


def test_traffic_over_gateways(capsys: Output, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("IPUJAX_PARTITION_SIZE", "128")
    pair = answer(iputraffictest, "--device0", "0", "--device1", "64", output=capsys)
    seconds = 1000 * (2**21 / 25e9 + (100 + 2 * 40 + 2066) / CLOCK)
    assert float(pair["tile_to_tile"]["duration_sec"]) == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "choose two IPUs"),
        (("--device0", "1"), "choose two IPUs"),
        (("--device0", "1", "--device1", "1"), "the same IPU"),
        (("--device0", "1", "--device1", "24"), "device 24 has 4 IPUs, but must be a single one"),
        (("--device0", "1", "--device1", "31"), "no device with id 31"),
        (("--all-links", "-i", "0"), "not an integer of at least 1"),
    ],
)
def test_wrong_pairs(arguments: tuple[str, ...], message: str, capsys: Output):
    assert message in refuse(iputraffictest, *arguments, output=capsys)


def test_traffic_with_the_host(capsys: Output):
    data = answer(hosttraffictest, "-d", "24", "-i", "1000", output=capsys)
    assert data["configuration"]["number_of_ipus"] == "4"
    way = data["repeat_0"]["host_to_tile"]
    moved = 4 * 1000 * 32 * 4096  # four IPUs, each with a connection of its own
    assert way["tile_data_transferred_bytes"] == str(moved)
    seconds = 1000 * (32 * 4096 / 32e9 + 100 / CLOCK)
    assert float(way["duration_seconds"]) == pytest.approx(seconds, rel=1e-3)
    assert float(way["tile_transfer_speed_gbps"]) == pytest.approx(moved * 8e-9 / seconds, rel=1e-3)


def test_exchanges(capsys: Output):
    (ipu,) = answer(exchangetest, "-d", "3", output=capsys)["ipus"]
    assert ipu["pcie_id"] == 3
    small, *_, large = ipu["exchanges"]
    assert small["cycles"] == 100 + 100 + 64 / 4
    # All tiles at once: 7.8 TB/s, which is published as 8.
    assert large["tbytes_per_second"] == pytest.approx(1472 * 4 * CLOCK / 1e12, rel=0.01)


def test_memory(capsys: Output):
    data = answer(memorytest, "-d", "16", output=capsys)
    assert data["tiles_tested"] == 2 * 1472
    assert data["bytes_tested"] == 2 * 1472 * 624 * 1024
    assert data["duration_seconds"] == pytest.approx(2 * 624 * 1024 / 8 / CLOCK)
    assert data["failing_tiles"] == []


def test_power_is_not_modelled(capsys: Output):
    assert powertest.main(["-d", "0"]) == 1
    assert "there is no model of an IPU's power" in capsys.readouterr().err
    assert "no device with id 99" in refuse(powertest, "-d", "99", output=capsys)


def test_reset_refuses_ipus_in_use(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
    monkeypatch.setenv("IPUJAX_RUNTIME_DIR", str(tmp_path))
    program = (
        "from ipujax.config import IPUConfig; import os; "
        "IPUConfig().configure_ipu_system(); os._exit(0)"  # leaves its record
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    assert len(list(tmp_path.iterdir())) == 1
    assert reset.main([]) == 0
    assert not list(tmp_path.iterdir())
    assert "16 IPUs reset" in capsys.readouterr().out
    IPUConfig().configure_ipu_system()
    assert reset.main(["-d", "0"]) == 1
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    assert reset.main(["-d", "1"]) == 0


def test_containers_see_the_ipus_of_a_device(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
    assert docker.main(["-d", "24", "--echo", "--", "-ti", "my image", "bash"]) == 0
    expected = "docker run -e IPUJAX_PARTITION_SIZE=4 -ti 'my image' bash\n"
    assert capsys.readouterr().out == expected
    assert "after `--`" in refuse(docker, "-d", "24", "--", output=capsys)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert docker.main(["--", "image"]) == 1
    assert "docker is not installed" in capsys.readouterr().err
    stand_in = tmp_path / "docker"
    stand_in.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\nexit 7\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("IPUJAX_PARTITION_SIZE", "64")
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p")
    assert docker.main(["--", "image"]) == 7
    called = (tmp_path / "called").read_text()
    assert called == "run -e IPUJAX_PARTITION_SIZE=64 -e IPUOF_VIPU_API_PARTITION_ID=p image\n"
