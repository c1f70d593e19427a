"""Files that are no saved executables, or not any more: always an ExecutableError."""

from __future__ import annotations

import dataclasses as dc
import functools
import hashlib
import importlib.util
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ipujax as ipu
from ipujax.driver.saved import classes, container
from ipujax.driver.saved.container import Content
from ipujax.errors import DeviceError, ExecutableError, ExecutableFileError
from tests.conftest import RunWithDevices
from tests.ipujax.saving import compiled, entries

f32 = np.float32


@functools.cache
def saved() -> bytes:
    """The bytes of a good file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        compiled(lambda x: x * np.arange(3, dtype=f32), np.ones(3, f32)).save(path)
        return path.read_bytes()


def refused(data: bytes, folder: str | os.PathLike[str]) -> str:
    """What loading says of a file with these bytes."""
    path = Path(folder, "damaged")
    path.write_bytes(data)
    with pytest.raises(ExecutableError) as caught:
        ipu.load_executable(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@given(st.data())
def test_a_part_that_is_lost(data: st.DataObject) -> None:
    whole = saved()
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start + 1, len(whole)))
    with tempfile.TemporaryDirectory() as folder:
        refused(whole[:start] + whole[stop:], folder)


@given(st.integers(0, 400) | st.integers(0, 10**9))
def test_an_end_that_is_lost(length: int) -> None:
    whole = saved()
    with tempfile.TemporaryDirectory() as folder:
        refused(whole[: length % len(whole)], folder)


@given(st.lists(st.integers(0, 1000) | st.integers(0, 10**9), min_size=1, max_size=4, unique=True))
def test_bits_that_are_flipped(bits: list[int]) -> None:
    changed = bytearray(saved())
    for bit in {bit % (8 * len(changed)) for bit in bits}:
        changed[bit // 8] ^= 1 << bit % 8
    with tempfile.TemporaryDirectory() as folder:
        refused(bytes(changed), folder)


@given(st.binary(max_size=200))
def test_foreign_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        said = refused(data, folder)
        assert "no saved executable" in said or "damaged" in said


def test_other_versions(tmp_path: Path) -> None:
    assert "of version 2" in refused(saved().replace(b"executable 1", b"executable 2", 1), tmp_path)


@pytest.mark.parametrize("field", ["program", "kernels", "signature", "queues", "blobs"])
def test_content_of_another_form(field: str, tmp_path: Path) -> None:
    content = container.decode_file(saved(), "a")
    index = {name: value for name, value in content.index.items() if name != field}
    if field == "blobs":
        index, content = content.index, Content(content.index, [b""] * len(content.blobs))
    container.write_container(Content(index, content.blobs), tmp_path / "a")
    with pytest.raises(ExecutableError, match=r"is not understood: .*saved it, and this is ipujax"):
        ipu.load_executable(tmp_path / "a")


def changed(index: dict[str, Any], path: list[Any], value: Any) -> dict[str, Any]:
    """An index with another value at a path."""
    again = json.loads(json.dumps(index))
    place = again
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return again


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["program", "body"], {"Sequence": {"steps": []}}),
        (["program", "body"], {"Loop": {}}),
        (["program", "outputs"], [99]),
        (["kernels", 0, "in"], []),
        (["configuration"], {"no.such_option": 1}),
        (["configuration"], {"auto_select_ipus": 999}),
        (["ipus"], "two"),
    ],
)
def test_content_that_contradicts_itself(path: list[Any], value: Any, tmp_path: Path) -> None:
    content = container.decode_file(saved(), "a")
    index = changed(content.index, path, value)
    container.write_container(Content(index, content.blobs), tmp_path / "a")
    with pytest.raises((ExecutableError, DeviceError)):
        ipu.load_executable(tmp_path / "a")


def test_code_for_other_devices(tmp_path: Path) -> None:
    content = container.decode_file(saved(), "a")
    container.write_container(
        Content(content.index | {"platform": "tpu"}, content.blobs), tmp_path / "a"
    )
    with pytest.raises(ExecutableError, match="was saved for tpu, and JAX computes on cpu here"):
        ipu.load_executable(tmp_path / "a")


def test_classes_are_never_imported(tmp_path: Path) -> None:
    content = container.decode_file(saved(), "a")
    signature = content.index["signature"] | {"out": ["this:Zen", None, []]}
    container.write_container(
        Content(content.index | {"signature": signature}, content.blobs), tmp_path / "a"
    )
    with pytest.raises(ExecutableError, match="a Zen of `this`, which is not there"):
        ipu.load_executable(tmp_path / "a")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExecutableFileError, match="no saved executable") as caught:
        ipu.load_executable(tmp_path / "missing")
    assert isinstance(caught.value, FileNotFoundError)
    assert __file__ in str(caught.value.where)
    assert "fix:" in str(caught.value)
    with pytest.raises(ExecutableError, match="it has none"):
        ipu.load_executable(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ExecutableError, match="is a pipe"):
        ipu.load_executable(tmp_path / "pipe")


def test_a_process_that_is_killed_while_saving_leaves_the_old_file(
    tmp_path: Path, run_with_devices: RunWithDevices
) -> None:
    source = """
        import os, signal
        import numpy as np
        import ipujax as ipu

        def save(factor):
            run = ipu.compile(lambda x: x * factor).lower(np.float32(1)).compile()
            run.save("a.ipujax")

        save(2)
        os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        save(3)
    """
    with pytest.raises(AssertionError, match="ended with -9"):
        run_with_devices(1, source)
    assert len([name for name in entries(tmp_path) if name.startswith(".ipujax-")]) == 1
    assert ipu.load_executable(tmp_path / "a.ipujax")(f32(1)) == 2
    compiled(lambda x: x * 4, f32(1)).save(tmp_path / "a.ipujax")
    assert not [name for name in entries(tmp_path) if name.startswith(".ipujax-")]
    assert ipu.load_executable(tmp_path / "a.ipujax")(f32(1)) == 4


# --- files that somebody made ---------------------------------------------------------------------


def crafted(folder: Path, **parts: Any) -> Path:
    """A file with a right digest, and other parts of its index."""
    content = container.decode_file(saved(), "a")
    container.write_container(Content(content.index | parts, content.blobs), folder / "a")
    return folder / "a"


@pytest.mark.parametrize(
    "configuration",
    [
        {
            "__class__.__class_getitem__": {"class": "subprocess:Popen"},
            "auto_select_ipus": {
                "member": ["ipujax.system.config_options:SystemOptions", ["touch", "here"]]
            },
        },
        {"_values": {"dict": []}},
        {"auto_select_ipus.real": 1},
        {"ipu_model": 1},
        {"serialization_output_folder": "elsewhere"},
        {"auto_select_ipus": {"member": ["builtins:int", "real"]}},
        {"auto_select_ipus": {"class": "subprocess:Popen"}},
        {"auto_select_ipus": {"member": ["ipujax.config:DeviceConnectionType", "mro"]}},
    ],
)
def test_a_configuration_names_options_alone(configuration: Any, tmp_path: Path) -> None:
    with pytest.raises(ExecutableError):
        ipu.load_executable(crafted(tmp_path, configuration=configuration))
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    "name",
    ["subprocess:Popen", "os:system", "ipujax.ground.files:replacing", "builtins:eval", "this:Zen"],
)
def test_classes_are_of_the_table_alone(name: str, tmp_path: Path) -> None:
    signature = container.decode_file(saved(), "a").index["signature"]
    for node in ([name, None, []], ["builtins:dict", {"list": [{"class": name}]}, [None]]):
        path = crafted(tmp_path, signature=signature | {"out": node})
        with pytest.raises(ExecutableError, match="which is not there"):
            ipu.load_executable(path)


@pytest.mark.parametrize(
    "node",
    [
        ["builtins:dict", {"list": ["a", "b"]}, [None]],
        ["builtins:dict", {"list": ["b", "a"]}, [None, None]],
        ["builtins:dict", {"list": [{"list": [1]}]}, [None]],
        ["builtins:tuple", 5, [None]],
        ["None", None, [None]],
        ["builtins:int", None, [None]],
        ["collections:OrderedDict", {"tuple": ["a", "b"]}, [None]],
        ["collections:defaultdict", 5, [None]],
        ["optax._src.transform:ScaleByAdamState", None, [None]],
        "text",
        [],
    ],
)
def test_nodes_that_do_not_fit_their_children(node: Any, tmp_path: Path) -> None:
    signature = container.decode_file(saved(), "a").index["signature"]
    with pytest.raises(ExecutableError):
        ipu.load_executable(crafted(tmp_path, signature=signature | {"out": node}))


def test_an_index_that_unpacks_to_more_than_there_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_MOST_BYTES", 2**22)  # which takes less memory than 2**29
    for text in (b" " * (2**22 + 1), b"[" + b"[]," * 2**18 + b"0]", b"[" * 10**5):
        deflated = zlib.compress(text, 1)
        body = len(deflated).to_bytes(8, "little") + deflated
        digest = hashlib.sha256(body).hexdigest()
        said = refused(f"ipujax executable 1 sha256:{digest}\n".encode() + body, tmp_path)
        assert "its index cannot be read" in said


def test_code_that_calls_by_address(tmp_path: Path) -> None:
    """What `jax.export` refuses to write, anybody can."""
    call = jax.ffi.ffi_call("xla_ffi_python_cpu_callback", jax.ShapeDtypeStruct((3,), f32))
    checks = [jax.export.DisabledSafetyCheck.custom_call("xla_ffi_python_cpu_callback")]
    exported = jax.export.export(jax.jit(lambda x: [call(x)]), disabled_checks=checks)(
        np.ones(3, f32)
    )
    code = dc.replace(exported, disabled_safety_checks=()).serialize()
    compiled(lambda x: x + 1, np.ones(3, f32)).save(tmp_path / "a")
    content = container.decode_file((tmp_path / "a").read_bytes(), "a")
    container.write_container(Content(content.index, [*content.blobs[:-1], code]), tmp_path / "a")
    with pytest.raises(ExecutableError, match="calls 'xla_ffi_python_cpu_callback', which is"):
        ipu.load_executable(tmp_path / "a")


def test_the_classes_that_programs_of_ours_have_are_found() -> None:
    for home in classes._CLASS_MODULES:
        assert importlib.util.find_spec(home) is not None
    for name in ("ipujax.rnn_ops:LSTMStateTuple", "optax._src.transform:ScaleByAdamState"):
        assert issubclass(classes.find_class(name), tuple)
