"""Checkpoints as an `.npz`, and as a folder of orbax's: whatever is restored is what was saved."""

from __future__ import annotations

import functools
import io
import json
import random
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checkpoints import Position, store, with_orbax
from ipujax.errors import IPUError
from tests.file_fuzz.changes import change_bytes, change_json, exchange
from tests.file_fuzz.readers.reader import Files, Reader, read_files

_MARK = "changed-json"  # a file beside the checkpoint: its texts were changed on purpose


def _tree() -> Any:
    return {
        "w": np.arange(3000, dtype=np.float32).reshape(3, 1000),
        "b": [jnp.ones(5, jnp.bfloat16), np.int32(7), np.zeros((0, 2))],
        "key": jax.random.key(3),
    }


def _samples(uses_orbax: bool) -> Mapping[str, Files]:
    installed = with_orbax.is_installed
    with_orbax.is_installed = lambda: uses_orbax
    try:
        with tempfile.TemporaryDirectory() as folder:
            store.save_checkpoint(folder, 3, _tree(), position=Position(100, {"at": [1, 2]}, 7))
            return {"tree": read_files(Path(folder))}
    finally:
        with_orbax.is_installed = installed


def _change_npz(files: Files, rng: random.Random) -> Files:
    ((name, content),) = files.items()
    if rng.random() < 0.4:
        return {name: rng.choice((change_bytes, exchange))(content, rng)}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    chosen = rng.choice(["ipujax.json", "ipujax.json", "sums.json"])
    members[chosen] = json.dumps(change_json(json.loads(members[chosen]), rng)).encode()
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w", rng.choice((0, 0, 0, 8))) as archive:
        for each, data in members.items():
            archive.writestr(each, data)
    return {name: changed.getvalue(), _MARK: b""}


def _change_folder(files: Files, rng: random.Random) -> Files:
    name = rng.choice(sorted(files))
    content = files[name]
    try:
        document = json.loads(content)
    except ValueError:
        return {**files, name: rng.choice((change_bytes, exchange))(content, rng)}
    if rng.random() < 0.3:
        return {**files, name: change_bytes(content, rng), _MARK: b""}
    return {**files, name: json.dumps(change_json(document, rng)).encode(), _MARK: b""}


def _read(folder: Path) -> str | None:
    found = store.restore_checkpoint(folder)
    like = store.restore_checkpoint(folder, _tree()).tree
    if (folder / _MARK).exists():
        return None  # other names are no damage
    same = jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), like, _tree()))
    is_right = same and found.step == 3 and found.position == Position(100, {"at": [1, 2]}, 7)
    return None if is_right else "other numbers were restored without a word"


READER = Reader(
    "checkpoint", functools.cache(lambda: _samples(False)), _change_npz, _read, (IPUError,)
)
ORBAX = Reader(
    "orbax", functools.cache(lambda: _samples(True)), _change_folder, _read, (IPUError,), 60.0
)
