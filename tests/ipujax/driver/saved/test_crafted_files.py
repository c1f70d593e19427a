"""Files that somebody made on purpose: their digest is right, and nothing of theirs may run."""

from __future__ import annotations

import dataclasses as dc
import hashlib
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

import ipujax as ipu
from ipujax.driver.saved import container
from ipujax.driver.saved.container import Content

X = np.ones((2, 3), np.float32)
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "good.ipujax"
    ipu.compile(lambda x: {"a": x + 1, "b": [x.sum(), None]}).lower(X).compile().save(path)
    return path


def craft(good: Path, folder: Path, change: Change) -> Path:
    """Writes a changed file whose digest is right."""
    content = container.decode_file(good.read_bytes(), "good")
    index = json.loads(json.dumps(content.index))
    del index["blobs"]
    change(index)
    path = folder / "crafted.ipujax"
    container.write_container(Content(index, list(content.blobs)), path)
    return path


def set_in(*keys: Any, value: Any) -> Change:
    def change(index: dict[str, Any]) -> None:
        place: Any = index
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


OPTIONS = "ipujax.system.config_options:SystemOptions"
CRAFTED: dict[str, Change] = {
    "an option of Python's": set_in(
        "configuration", value={"__class__.__class_getitem__": {"class": "subprocess:Popen"}}
    ),
    "an option inside of an option": set_in(
        "configuration", value={"auto_select_ipus.real": {"class": "builtins:int"}}
    ),
    "an option of the process": set_in(
        "configuration", value={"serialization_output_folder": "elsewhere"}
    ),
    "a member of no enum": set_in(
        "configuration", value={"auto_select_ipus": {"member": [OPTIONS, ["sh"]]}}
    ),
    "a class that is no node": set_in("signature", "out", value=["subprocess:Popen", None, []]),
    "a module to import": set_in("signature", "out", value=["this:Zen", None, []]),
    "a function in the place of a class": set_in("signature", "out", value=["os:system", None, []]),
    "fewer children than keys": set_in(
        "signature", "out", value=["builtins:dict", {"list": ["a", "b"]}, [None]]
    ),
    "data of a tuple": set_in("signature", "out", value=["builtins:tuple", 3, [None]]),
    "a named tuple of other fields": set_in(
        "signature", "out", value=["jax.tree_util:GetAttrKey", None, []]
    ),
    "a kernel counted from behind": set_in("signature", "positions", value=[-1]),
    "more results than there are": set_in(
        "signature", "out", value=["builtins:list", None, [None] * 9]
    ),
    "a dtype of objects": set_in("program", "avals", 0, value=["object", [2], False]),
    "an array without end": set_in("program", "avals", 0, value=["float32", [2**40, 2**40], False]),
    "a negative size": set_in("program", "avals", 0, value=["float32", [-1], False]),
    "another engine": set_in("engine", value="shell"),
    "a node that is none": set_in("program", "body", value={"Popen": {"args": ["sh"]}}),
    "nested without end": set_in("program", "body", value=json.loads("[" * 400 + "]" * 400)),
}


@pytest.mark.parametrize("what", CRAFTED)
def test_crafted_files_are_refused(good: Path, tmp_path: Path, what: str) -> None:
    path = craft(good, tmp_path, CRAFTED[what])
    before = set(sys.modules)
    with pytest.raises(ipu.errors.ExecutableError, match=r"crafted\.ipujax"):
        ipu.load_executable(path)
    assert "this" not in set(sys.modules) - before


def test_good_files_are_read(good: Path, tmp_path: Path) -> None:
    """What the changes start from is no reason to refuse anything."""
    loaded = ipu.load_executable(craft(good, tmp_path, lambda index: None))
    np.testing.assert_array_equal(loaded(X)["a"], X + 1)


def test_no_command_runs(good: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    configuration = {
        "__class__.__class_getitem__": {"class": "subprocess:Popen"},
        "auto_select_ipus": {"member": [OPTIONS, ["sh", "-c", f"touch {mark}"]]},
    }
    path = craft(good, tmp_path, set_in("configuration", value=configuration))
    source = f"""
import sys
started = []
sys.addaudithook(lambda event, args: event == "subprocess.Popen" and started.append(args))
import subprocess
import ipujax as ipu
del started[:]
try:
    ipu.load_executable({str(path)!r})
except ipu.errors.ExecutableError:
    print("refused", started)
"""
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert result.stdout == "refused []\n", result.stderr
    assert not mark.exists()


def test_a_small_file_does_not_fill_the_memory(good: Path, tmp_path: Path) -> None:
    index = zlib.compress(b"[" + b"[]," * (2**23) + b"0]", 9)
    body = len(index).to_bytes(8, "little") + index
    path = tmp_path / "bomb.ipujax"
    digest = hashlib.sha256(body).hexdigest()
    path.write_bytes(f"ipujax executable 1 sha256:{digest}\n".encode() + body)
    with pytest.raises(ipu.errors.ExecutableError, match="more than can be"):
        ipu.load_executable(path)


def test_kernels_call_no_foreign_code(tmp_path: Path) -> None:
    """`jax.export` looks at what code calls when it writes, and not when it reads."""
    target = "xla_ffi_python_cpu_callback"
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((2, 3), "float32"))
    checks = [jax.export.DisabledSafetyCheck.custom_call(target)]
    exported = jax.export.export(jax.jit(call), disabled_checks=checks)(X)
    exported = dc.replace(exported, disabled_safety_checks=())
    good = tmp_path / "good.ipujax"
    ipu.compile(lambda x: x * 2).lower(X).compile().save(good)
    content = container.decode_file(good.read_bytes(), "good")
    index = dict(content.index)
    count = len(index["kernels"])
    blobs = [*content.blobs[:-count], *[exported.serialize()] * count]
    del index["blobs"]
    path = tmp_path / "foreign.ipujax"
    container.write_container(Content(index, blobs), path)
    with pytest.raises(ipu.errors.ExecutableError, match="kernel"):
        ipu.load_executable(path)
