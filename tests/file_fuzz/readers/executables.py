"""Saved executables: changed ones have a digest that is right, as anybody could write it."""

from __future__ import annotations

import collections
import functools
import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import ipujax as ipu
from ipujax.driver.saved import container
from ipujax.driver.saved.container import Content
from ipujax.errors import IPUError
from tests.file_fuzz.changes import change_bytes, change_json
from tests.file_fuzz.readers.reader import Files, Reader, read_files

_NAME = "program.ipujax"
_COUNT = 1000  # of a loop's rounds, that a call may take


class Pair(NamedTuple):
    left: Any
    right: Any


def _arguments(name: str) -> tuple[Any, ...]:
    w = np.ones((3, 2), np.float32)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    match name:
        case "loop":
            return (x,)
        case "tree":
            return {"w": w, "b": [w[0], None]}, Pair(x, (w, np.int32(1)))
        case "state":
            return w, optax.adam(0.1).init(w)
        case _:
            return w, x


def _product(w: Any, x: Any) -> Any:
    return (x @ w).sum() + np.arange(3, dtype=np.float32)


def _loop(x: Any) -> Any:
    y = ipu.loops.repeat(5, lambda y: y * 1.5 + np.float32(1), [x])
    return jax.lax.cond(y.sum() > 0, lambda v: v, lambda v: -v, y)


def _tree(tree: Any, pair: Any) -> Any:
    return collections.OrderedDict(a=tree["w"] * 2, b=Pair(pair.left.sum(), [pair.right[0]]))


def _state(w: Any, state: Any) -> Any:
    updates, state = optax.adam(0.1).update(w * 2, state)
    return optax.apply_updates(w, updates), state


_PROGRAMS = {"product": _product, "loop": _loop, "tree": _tree, "state": _state}


@functools.cache
def _samples() -> Mapping[str, Files]:
    samples: dict[str, Files] = {}
    for name, function in _PROGRAMS.items():
        for engine in ("fused", "replay"):
            with tempfile.TemporaryDirectory() as folder:
                lowered = ipu.compile(function, engine=engine).lower(*_arguments(name))
                lowered.compile().save(Path(folder, _NAME))
                samples[f"{name}-{engine}"] = read_files(Path(folder))
    return samples


def _change(files: Files, rng: random.Random) -> Files:
    whole = files[_NAME]
    if rng.random() < 0.1:
        return {_NAME: change_bytes(whole, rng)}
    content = container.decode_file(whole, _NAME)
    index, blobs = content.index, list(content.blobs)
    del index["blobs"]
    if blobs and rng.random() < 0.3:
        number = rng.randrange(len(blobs))
        if number < len(index["program"]["constants"]):
            blobs[number] = change_bytes(bytes(blobs[number]), rng)
        else:  # of a kernel: jaxlib's own reader of StableHLO ends the process at some bytes
            blobs[number] = bytes(rng.choice(blobs))
    elif rng.random() < 0.8:
        part = rng.choice(["program", "signature", "kernels", "configuration", "queues", "device"])
        index = {**index, part: change_json(index[part], rng)}
    else:
        index = change_json(index, rng)
    if not isinstance(index, dict):
        index = {"ipujax": index}
    with tempfile.TemporaryDirectory() as folder:
        container.write_container(Content(index, blobs), Path(folder, _NAME))
        return read_files(Path(folder))


def _read(folder: Path) -> str | None:
    path = folder / _NAME
    loaded = ipu.load_executable(path)
    loaded.as_text()
    index = container.decode_file(path.read_bytes(), _NAME).index
    for name in _PROGRAMS:
        if f"_{name}" == loaded.program.name and not _runs_long(index["program"]):
            loaded(*_arguments(name))
    str(loaded.report())
    return None


def _runs_long(program: Any) -> bool:
    """Whether some number in a program may be of rounds that take long."""
    left = [program]
    while left:
        value = left.pop()
        if isinstance(value, dict | list):
            left.extend(value.values() if isinstance(value, dict) else value)
        elif type(value) is int and value > _COUNT:
            return True
    return "While" in json.dumps(program)


READER = Reader("executable", _samples, _change, _read, (IPUError,), seconds=30.0)
