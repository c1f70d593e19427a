"""Checkpoints that were changed: found, whatever was changed, and always a CheckpointError."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax import checkpoint
from ipujax.errors import CheckpointError
from tests.ipujax.checkpoints import trees

TREE = {"w": np.arange(4096, dtype=np.float32), "b": jnp.ones(8, jnp.bfloat16)}


@pytest.fixture(params=trees.KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    trees.use(request.param, monkeypatch)
    return request.param


def data_file(folder: Path) -> Path:
    """The file that has the numbers of `w`."""
    wanted = TREE["w"].tobytes()[:4096]
    return next(p for p in folder.rglob("*") if p.is_file() and wanted in p.read_bytes())


@pytest.mark.parametrize("size", [4, 8, 64, 4096])
def test_pages_and_words_that_changed_places(size: int, kind: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, TREE)
    path = data_file(tmp_path)
    content = bytearray(path.read_bytes())
    start = content.index(TREE["w"].tobytes())
    one, other = slice(start, start + size), slice(start + 2 * size, start + 3 * size)
    content[one], content[other] = content[other], content[one]
    path.write_bytes(content)
    for like in (None, TREE):
        with pytest.raises(CheckpointError, match="the numbers of `w` are others"):
            checkpoint.restore(tmp_path, like=like)


def test_checkpoints_of_older_releases(kind: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, TREE)
    for path in tmp_path.rglob("sums.json"):
        path.unlink()  # orbax had none; the sums of an .npz are as they were
    trees.same(checkpoint.restore(tmp_path, like=TREE), TREE)


def rewrite(path: Path, texts: dict[str, bytes], *, compression: int = zipfile.ZIP_STORED) -> None:
    """Gives members of an archive other content."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | texts
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            kind = compression if name in texts else zipfile.ZIP_STORED
            archive.writestr(name, content, kind)


@pytest.mark.parametrize(
    "change",
    [
        {"raw_shape": [10**12]},
        {"raw_shape": [-1]},
        {"raw_shape": "ab"},
        {"shape": [2, 2]},
        {"dtype": "object"},
        {"dtype": None},
        {"raw_dtype": "float32,float32"},
        {"raw_dtype": "S10"},
        {"name": 5},
        {"name": "b"},
        {"impl": "no such"},
        {"impl": 3},
        {"more": 1},
    ],
    ids=str,
)
def test_leaves_that_no_array_is(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.use("npz", monkeypatch)
    path = Path(checkpoint.save(tmp_path, 1, TREE) or tmp_path / "ckpt-1.npz")
    with zipfile.ZipFile(path) as archive:
        contents = json.loads(archive.read("ipujax.json"))
    leaf = next(leaf for leaf in contents["leaves"] if leaf["name"] == "w")
    leaf.update(change)
    rewrite(path, {"ipujax.json": json.dumps(contents).encode()})
    with pytest.raises(CheckpointError):
        checkpoint.restore(tmp_path)


@pytest.mark.parametrize("member", ["ipujax.json", "sums.json"])
def test_texts_that_unpack_to_more_than_there_is(
    member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.use("npz", monkeypatch)
    checkpoint.save(tmp_path, 1, TREE)
    rewrite(tmp_path / "ckpt-1.npz", {member: b"[]," * 10**6}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="is compressed, or too long"):
        checkpoint.restore(tmp_path)


def test_bytes_that_are_others(kind: str, tmp_path: Path) -> None:
    """A sample of what `python -m tests.file_fuzz` does: refused, or the same numbers."""
    checkpoint.save(tmp_path, 1, TREE)
    rng = random.Random(0)
    paths = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    for _ in range(20 if kind == "npz" else 5):
        path = rng.choice(paths)
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            trees.same(checkpoint.restore(tmp_path, like=TREE), TREE)
        except CheckpointError:
            pass
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "change",
    [{"shape": [2**32]}, {"chunks": [2**40]}, {"chunks": None}, {"shape": [-1]}, {"shape": 8}],
    ids=str,
)
def test_arrays_whose_layout_asks_for_other_memory(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.use("orbax", monkeypatch)
    checkpoint.save(tmp_path, 1, TREE)
    for path in tmp_path.rglob(".zarray"):
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=r"the layout of `(w|b)` is not that of its array"):
        checkpoint.restore(tmp_path, like=TREE)
