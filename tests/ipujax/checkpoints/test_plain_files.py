"""Arrays that orbax wrote as files of their bytes: read without orbax, and not without care."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax import checkpoint
from ipujax.checkpoints import with_orbax
from ipujax.errors import CheckpointError
from tests.ipujax.checkpoints import trees

TREE = {"w": np.arange(700_000, dtype=np.float32).reshape(700, 1000), "b": jnp.float32(2)}


@pytest.fixture(autouse=True)
def by_orbax(monkeypatch: pytest.MonkeyPatch) -> None:
    trees.use("orbax", monkeypatch)


def folder_of_array(directory: Path, number: int) -> Path:
    """The folder that orbax made for a leaf; the names of leaves are sorted."""
    return directory / "ckpt-1" / "arrays" / str(number)


def test_orbax_reads_nothing_that_was_written_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = trees.state()
    checkpoint.save(tmp_path, 1, everything)
    by_orbax = checkpoint_read_by_orbax(tmp_path, everything, monkeypatch)
    monkeypatch.setattr(with_orbax, "_read_with_orbax", lambda *_: pytest.fail("orbax reads"))
    own = checkpoint.restore(tmp_path, like=everything)
    trees.same(own, everything)
    trees.same(own, by_orbax)


def checkpoint_read_by_orbax(directory: Path, like: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What orbax reads of the newest checkpoint."""
    with monkeypatch.context() as patch:
        patch.setattr(with_orbax, "_find_plain_file", lambda *_: None)
        return checkpoint.restore(directory, like=like)


def test_arrays_are_aligned_so_that_jax_copies_none(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, TREE)
    assert checkpoint.restore(tmp_path)["w"].ctypes.data % 64 == 0


def test_what_others_compressed_is_read_by_orbax(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orbax = with_orbax._import_orbax()
    original = orbax.PyTreeCheckpointHandler

    def compressing(**options: Any) -> Any:
        return original(**{**options, "use_compression": True})

    with monkeypatch.context() as patch:
        patch.setattr(orbax, "PyTreeCheckpointHandler", compressing)
        checkpoint.save(tmp_path, 1, TREE)
    layout = json.loads((folder_of_array(tmp_path, 1) / ".zarray").read_text())
    assert layout["compressor"]
    trees.same(checkpoint.restore(tmp_path, like=TREE), TREE)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"1234")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("change", [cut, lengthen, flip], ids=lambda change: change.__name__)
def test_changed_files_are_found(change: Callable[[Path], None], tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, TREE)
    change(folder_of_array(tmp_path, 1) / "0.0")
    with pytest.raises(CheckpointError, match=r"is damaged: the (numbers|file) of `w`"):
        checkpoint.restore(tmp_path)


@pytest.mark.parametrize("sums", [{}, {"0": 1}, {"1": None}], ids=str)
def test_an_array_without_its_sum_among_sums_is_damaged(
    sums: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint.save(tmp_path, 1, TREE)
    (tmp_path / "ckpt-1" / "sums.json").write_text(json.dumps(sums))
    with pytest.raises(CheckpointError, match=r"the numbers of `[bw]` are others"):
        checkpoint.restore(tmp_path)
