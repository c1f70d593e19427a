"""What goes wrong with checkpoints: a clear error, and the last checkpoint as it was."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipujax import checkpoint
from ipujax.checkpoints import with_orbax
from ipujax.checkpoints.contents import Contents, ForeignError, decode_contents, encode_contents
from ipujax.checkpoints.leaves import Leaf
from ipujax.errors import CheckpointError, CheckpointImportError, CheckpointTypeError
from ipujax.ground import files
from tests.harness import ROOT
from tests.ipujax.checkpoints import trees

ROOT_USER = os.name == "posix" and os.geteuid() == 0
TREE = {"w": np.arange(1000.0), "b": np.ones(3, np.float32)}


@pytest.fixture(params=trees.KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    trees.use(request.param, monkeypatch)
    return request.param


@pytest.fixture
def npz(monkeypatch: pytest.MonkeyPatch) -> None:
    trees.use("npz", monkeypatch)


def test_a_directory_must_be_one(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for use in (lambda d: checkpoint.save(d, 0, TREE), checkpoint.restore, checkpoint.latest_step):
        for place in (file, file / "below"):
            with pytest.raises(CheckpointError, match="is no directory"):
                use(place)
    assert file.read_text() == "mine"


@pytest.mark.skipif(ROOT_USER or os.name != "posix", reason="root may write everywhere")
def test_a_directory_may_be_read_only(kind: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, TREE)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(CheckpointError, match=r"cannot be saved in .*: Permission denied"):
            checkpoint.save(tmp_path, 1, TREE)
    finally:
        tmp_path.chmod(0o755)
    trees.same(checkpoint.restore(tmp_path), TREE)


@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        *(("npz", failing) for failing in ("open", "fsync", "replace")),
        *(("orbax", failing) for failing in ("mkdir", "fsync", "rename")),
    ],
    indirect=["kind"],
)
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_what_the_system_refuses_is_told(
    failing: str, number: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 0, TREE)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, failing, refuse)
        told = f"step 1 cannot be saved .*: .*{os.strerror(number)}"
        with pytest.raises(CheckpointError, match=told):
            checkpoint.save(tmp_path, 1, TREE)
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []
    assert checkpoint.latest_step(tmp_path) == 0
    trees.same(checkpoint.restore(tmp_path), TREE)
    checkpoint.save(tmp_path, 1, TREE)


FULL = """
import resource, sys
import numpy as np
from ipujax import checkpoint
from ipujax.checkpoints import with_orbax
with_orbax.is_installed = lambda: sys.argv[2] == "orbax"
small, large = {"w": np.ones(3)}, {"w": np.random.default_rng(0).random(10**6)}
checkpoint.save(sys.argv[1], 0, small)
resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))
try:
    checkpoint.save(sys.argv[1], 1, large)
except ValueError as error:
    print(error.what)
checkpoint.save(sys.argv[1], 2, small)  # the process goes on
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(os.name != "posix", reason="limits of files are POSIX's")
def test_a_full_disk_leaves_the_last_checkpoint(kind: str, tmp_path: Path) -> None:
    """Here it is files that may not grow."""
    arguments = [sys.executable, "-c", FULL, str(tmp_path), kind]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith(f"step 1 cannot be saved in {tmp_path}: ")
    assert [checkpoint.restore(tmp_path, step=step)["w"].shape for step in (0, 2)] == [(3,), (3,)]
    assert len(os.listdir(tmp_path)) == 2


def test_half_a_file_is_none(npz: None, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, TREE)
    path = Path(checkpoint.save(tmp_path, 1, TREE))
    whole = path.read_bytes()
    for length in (0, 1, 22, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError) as caught:
            checkpoint.restore(tmp_path)
        assert str(path) in caught.value.what
        assert caught.value.fix == "restore another step: 0"
    trees.same(checkpoint.restore(tmp_path, step=0), TREE)


def test_a_changed_bit_is_found(npz: None, tmp_path: Path) -> None:
    path = Path(checkpoint.save(tmp_path, 1, TREE))
    whole = bytearray(path.read_bytes())
    at = whole.index(np.arange(1000.0)[500:502].tobytes())
    whole[at] ^= 1
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match="is damaged: the numbers of `w` are others"):
        checkpoint.restore(tmp_path)


def test_files_of_others_are_refused(npz: None, tmp_path: Path) -> None:
    path = tmp_path / "ckpt-3.npz"
    np.savez(path, w=np.ones(3))
    with pytest.raises(CheckpointError, match=r"ckpt-3.npz is no checkpoint of ipujax"):
        checkpoint.restore(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(CheckpointError, match=r"ckpt-3.npz Is a directory"):
        checkpoint.restore(tmp_path)
    path.rmdir()
    (tmp_path / "ckpt-4").mkdir()
    with pytest.raises(CheckpointError, match=r"ckpt-4 is no checkpoint of ipujax"):
        checkpoint.restore(tmp_path)
    for name in ("ckpt-05", "ckpt-6.npz.old", "ckpt-7.0", "xckpt-8.npz", "ckpt--9"):
        (tmp_path / name).touch()
    assert checkpoint.latest_step(tmp_path) == 4


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b'{"format": "ipujax checkpoint", "version": 2}', "has version 2, and only 1 is known"),
        (b'{"format": "another"}', "is no checkpoint of ipujax"),
        (b"[]", "is no checkpoint of ipujax"),
        (b"\xff", "is no checkpoint of ipujax"),
        (b'{"format": "ipujax checkpoint", "version": 1}', "is no checkpoint of ipujax"),
    ],
)
def test_texts_of_others_are_refused(text: bytes, what: str) -> None:
    with pytest.raises(ForeignError, match=what):
        decode_contents(text)


def test_without_orbax_its_checkpoints_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder as orbax leaves it, without its arrays."""
    trees.use("npz", monkeypatch)
    path = tmp_path / "ckpt-3"
    path.mkdir()
    leaf = Leaf("w", "float32", (3,), "float32", (3,))
    (path / "ipujax.json").write_text(encode_contents(Contents((leaf,))))

    def missing() -> None:
        raise ImportError("No module named 'orbax'")

    monkeypatch.setattr(with_orbax, "_import_orbax", missing)
    assert checkpoint.latest_step(tmp_path) == 3
    with pytest.raises(CheckpointImportError, match="ipujax\\[checkpoint\\]") as caught:
        checkpoint.restore(tmp_path)
    assert isinstance(caught.value, ImportError)
    assert str(path) in caught.value.what


def test_what_orbax_cannot_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.use("orbax", monkeypatch)
    checkpoint.save(tmp_path, 0, TREE)
    path = Path(checkpoint.save(tmp_path, 1, TREE))
    for file in (path / "arrays").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:3])
    with pytest.raises(CheckpointError, match=r"(?s)ckpt-1 .*orbax.*restore another step: 0"):
        checkpoint.restore(tmp_path)
    trees.same(checkpoint.restore(tmp_path, step=0), TREE)


def _deleted() -> jax.Array:
    array = jnp.ones(3)
    array.delete()
    return array


@pytest.mark.parametrize(
    ("leaf", "error", "what"),
    [
        ("text", CheckpointTypeError, "leaf `x` of the tree is 'text', of type str"),
        (object(), CheckpointTypeError, "leaf `x` of the tree is <object"),
        (np.array(["a"]), CheckpointTypeError, "leaf `x` of the tree"),
        (2**70, CheckpointTypeError, "leaf `x` of the tree"),
        (jax.ShapeDtypeStruct((), np.float32), CheckpointTypeError, "leaf `x` of the tree"),
    ],
    ids=["str", "object", "strings", "large int", "shape"],
)
def test_leaves_are_arrays_of_numbers(
    leaf: Any, error: type[Exception], what: str, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=what):
        checkpoint.save(tmp_path, 0, {"x": leaf})
    assert os.listdir(tmp_path) == []


def test_arrays_must_be_readable(npz: None, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"leaf `x`.* cannot be read: Array has been deleted"):
        checkpoint.save(tmp_path, 0, {"x": _deleted()})
    with pytest.raises(CheckpointError, match=r"(?s)leaf `x`.* cannot be read.*outside of traced"):
        jax.jit(lambda x: checkpoint.save(tmp_path, 0, {"x": x}))(1.0)


def test_a_structure_of_what_is_no_array_is_refused(npz: None, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, {"x": 1.0})
    with pytest.raises(CheckpointTypeError, match="leaf `x` of `like` is 'text'"):
        checkpoint.restore(tmp_path, like={"x": "text"})


def test_64_bits_are_not_cut_off(npz: None, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, {"x": np.float64([0.1])})
    assert checkpoint.restore(tmp_path)["x"].dtype == np.float64
    with pytest.raises(CheckpointError, match="JAX has no float64 now"):
        checkpoint.restore(tmp_path, like={"x": jax.ShapeDtypeStruct((1,), np.float64)})


def test_an_old_checkpoint_that_stays_is_told(
    npz: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 0, TREE)

    def refuse(path: str) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(files, "remove_at_once", refuse)
    with pytest.raises(CheckpointError, match=r"step 1 is saved, but the older ckpt-0.npz in"):
        checkpoint.save(tmp_path, 1, TREE, keep=1)
    trees.same(checkpoint.restore(tmp_path, step=1), TREE)
