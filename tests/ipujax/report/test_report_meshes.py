"""Reports of programs on meshes name the JAX devices of each IPU."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import ipujax as ipu
from ipujax.report import Report
from ipujax.report.device_meshes import DeviceMesh, describe_device_meshes, format_device_names
from tests.conftest import RunWithDevices
from tests.ipujax.reporting import configured, struct

DEVICE = "cpu:0"
EIGHT_DEVICES = """
import jax, numpy as np
import ipujax as ipu

def model(x):
    with ipu.scopes.ipu_shard(0):
        y = x @ x
    with ipu.scopes.ipu_shard(1):
        return y.sum()

x = jax.ShapeDtypeStruct((8, 8), np.float32)
lowered = ipu.compile(model, meshes=ipu.meshes(2, {"data": 2, "model": 2})).lower(x)
print(*(line for line in str(lowered.report()).splitlines() if "mesh" in line), sep="\\n")
assert lowered.compile().report() is lowered.report()
"""


def model(x: Any) -> Any:
    with ipu.scopes.ipu_shard(0):
        y = jnp.tanh(x)
    with ipu.scopes.ipu_shard(1):
        return y @ y


def report_on(meshes: list[Mesh] | None) -> Report:
    return ipu.compile(model, meshes=meshes).lower(struct(8, 8)).report()


def test_a_report_names_the_devices_of_each_mesh(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(8, EIGHT_DEVICES).splitlines() == [
        "  IPU 0: mesh data=2, model=2 of cpu:0..3",
        "  IPU 1: mesh data=2, model=2 of cpu:4..7",
    ]


def test_replicas_are_told_apart() -> None:
    configured(4)
    report = report_on([Mesh(np.array(jax.devices()[:1]), ("data",))] * 4)
    assert report.meshes == tuple(
        DeviceMesh(replica, ipu_number, ("data",), (1,), (DEVICE,))
        for replica in range(2)
        for ipu_number in range(2)
    )
    assert f"  IPU 1 of replica 0: mesh data=1 of {DEVICE}\n" in str(report)


def test_a_file_keeps_the_meshes() -> None:
    report = report_on([Mesh(np.array(jax.devices()[:1]), ("data",))] * 2)
    document = report.to_dict()
    assert document["meshes"][1] == {
        "replica": 0,
        "ipu": 1,
        "axes": ["data"],
        "sizes": [1],
        "devices": [DEVICE],
    }
    assert Report.from_dict(document).meshes == report.meshes
    document["meshes"][1]["sizes"] = [3]
    with pytest.raises(ipu.errors.ReportError, match="`meshes`: ValueError: a mesh of 1 devices"):
        Report.from_dict(document)


def test_a_program_without_meshes_names_no_devices() -> None:
    configured(2)
    report = report_on(None)
    assert report.meshes == describe_device_meshes((), 2, 1) == ()
    assert "JAX devices" not in str(report)


def test_pages_of_text_list_so_many_meshes() -> None:
    report = report_on([Mesh(np.array(jax.devices()[:1]), ("data",))] * 2)
    text = str(dc.replace(report, meshes=report.meshes * 16))
    assert text.count("mesh data=1") == 16
    assert "\n  and 16 more\n" in text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["cpu:0", "cpu:1", "cpu:2"], "cpu:0..2"),
        (["gpu:1", "gpu:0"], "gpu:1, gpu:0"),
        (["gpu:0", "gpu:2", "gpu:3", "cpu:4"], "gpu:0, gpu:2..3, cpu:4"),
        (["x", "x", "y:"], "x, x, y:"),
    ],
)
def test_consecutive_devices_are_one_range(names: list[str], text: str) -> None:
    assert format_device_names(names) == text
