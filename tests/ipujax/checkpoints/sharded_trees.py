"""Trees over eight devices, saved and restored; run by `test_sharded.py` in a process of its own.

Every check is made with both kinds of files. It fails with an AssertionError.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import sys
import tempfile
import tracemalloc
import types
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ipujax import checkpoint
from ipujax.checkpoints import with_orbax
from ipujax.errors import CheckpointError
from tests.ipujax.checkpoints.trees import KINDS, bits

DEVICES = jax.devices()
MESH = Mesh(np.array(DEVICES).reshape(4, 2), ("a", "b"))
SECOND_STAGE = Mesh(np.array(DEVICES[4:]), ("a",))
JAX = str(Path(jax.__file__).parent)
ROOM = str(Path(with_orbax.__file__).parent)
LARGE = 2**20  # elements


def over(*spec: str | None, mesh: Mesh = MESH, **more: Any) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*spec), **more)


def on(number: int) -> SingleDeviceSharding:
    return SingleDeviceSharding(DEVICES[number])


def tree() -> dict[str, Any]:
    numbers = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    leaves = {
        "both axes": (numbers, over("a", "b")),
        "columns": (numbers + 1, over(None, ("a", "b"))),
        "rows, twice": (numbers + 2, over("a")),
        "everywhere": (numbers + 3, over()),
        "second stage": (numbers + 4, over("a", mesh=SECOND_STAGE)),
        "one device": (numbers + 5, on(5)),
        "bfloat16": (numbers.astype(jnp.bfloat16), over("a", "b")),
        "int4": ((numbers % 7).astype(jnp.int4), over("a", "b")),
        "bool": (numbers > 9, over("b")),
        "empty": (numbers[:, :0], over("a")),
        "scalar": (np.float32(3), over()),
        "scalar on one": (np.int32(4), on(6)),
        "key": (jax.random.key(1), on(3)),
        "key everywhere": (jax.random.key(2), over()),
        "keys": (jax.random.split(jax.random.key(3), 8), over("a")),
        "keys in a square": (jax.random.split(jax.random.key(4, impl="rbg"), (4, 2)), over("b")),
        "on the host": (numbers + 6, over("a", memory_kind="pinned_host")),
    }
    placed = {name: jax.device_put(value, sharding) for name, (value, sharding) in leaves.items()}
    return placed | {"numpy": numbers + 7, "number": 0.5, "movable": jnp.asarray(numbers + 8)}


def bytes_per_device() -> dict[int, int]:
    """The bytes of all buffers that are alive, by their devices' ids."""
    sizes: dict[tuple[int, int], int] = {}
    for array in jax.live_arrays():
        for shard in array.addressable_shards:
            place = shard.device.id, shard.data.unsafe_buffer_pointer()
            sizes[place] = max(sizes.get(place, 0), shard.data.nbytes)
    totals = collections.Counter[int]()
    for (device, _), size in sizes.items():
        totals[device] += size
    return dict(totals)


@contextlib.contextmanager
def watched() -> Generator[dict[int, int]]:
    """Notes each device's most bytes, more than at first, when the room has called JAX."""
    gc.collect()
    before = bytes_per_device()
    most: dict[int, int] = dict.fromkeys(range(len(DEVICES)), 0)

    def look() -> None:
        for device, size in bytes_per_device().items():
            most[device] = max(most[device], size - before.get(device, 0))

    def look_after_jax(frame: types.FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        is_room = caller is not None and caller.f_code.co_filename.startswith(ROOM)
        if event == "return" and is_room and frame.f_code.co_filename.startswith(JAX):
            sys.setprofile(None)
            look()
            sys.setprofile(look_after_jax)

    sys.setprofile(look_after_jax)
    try:
        yield most
    finally:
        sys.setprofile(None)
        look()


def own_bytes(trees: Any) -> dict[int, int]:
    """The bytes of each device's shards."""
    totals = dict.fromkeys(range(len(DEVICES)), 0)
    for leaf in jax.tree.leaves(trees):
        if isinstance(leaf, jax.Array):
            is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            for shard in (jax.random.key_data(leaf) if is_key else leaf).addressable_shards:
                totals[shard.device.id] += shard.data.nbytes
    return totals


def require_same(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert got.keys() == wanted.keys()
    for name, leaf in wanted.items():
        assert bits(got[name]) == bits(leaf), name


def check_each_leaf_is_where_like_is(folder: str) -> None:
    saved = tree()
    checkpoint.save(folder, 1, saved)
    with watched() as most:
        restored = checkpoint.restore(folder, like=saved)
    require_same(restored, saved)
    for name, leaf in saved.items():
        if isinstance(leaf, jax.Array):
            assert restored[name].sharding == leaf.sharding, name
            assert restored[name].committed == leaf.committed, name
    expected = own_bytes(saved)
    assert all(0 < most[device] <= expected[device] for device in expected), (most, expected)


def check_shapes_with_a_sharding(folder: str) -> None:
    """What was sharded in one way is restored in another, from shapes alone."""
    saved = tree()
    checkpoint.save(folder, 1, saved)
    shardings = {
        "both axes": over("b", "a"),
        "columns": over(("a", "b")),
        "rows, twice": on(7),
        "everywhere": over(None, "a", mesh=SECOND_STAGE),
        "one device": over("a", "b"),
        "keys": over("b"),
        "scalar": on(2),
        "numpy": over("a"),
    }
    chosen = {name: saved[name] for name in shardings}
    like = {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=shardings[name])
        for name, leaf in chosen.items()
    }
    like_all = {name: like.get(name, leaf) for name, leaf in saved.items()}
    with watched() as most:
        restored = checkpoint.restore(folder, like=like_all)
    require_same(restored, saved)
    assert {name: restored[name].sharding for name in shardings} == shardings
    expected = own_bytes(restored)
    assert all(most[device] <= expected[device] for device in expected), (most, expected)


def check_shapes_without_a_sharding(folder: str) -> None:
    saved = tree()
    checkpoint.save(folder, 1, saved)
    arrays = {name: leaf for name, leaf in saved.items() if name != "number"}
    like = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in arrays.items()}
    restored = checkpoint.restore(folder, like=like | {"number": 0.0})
    require_same(restored, saved | {"numpy": jnp.asarray(saved["numpy"])})
    for name in arrays:
        assert restored[name].devices() == {DEVICES[0]}, name
        assert not restored[name].committed, name
    require_same(checkpoint.restore(folder), saved | {"number": np.float64(0.5)})


def check_arrays_that_move_stay_so(folder: str) -> None:
    with jax.default_device(DEVICES[2]):
        saved = {"x": jnp.arange(4.0), "key": jax.random.key(0)}
    checkpoint.save(folder, 1, saved)
    restored = checkpoint.restore(folder, like=saved)
    assert all(leaf.devices() == {DEVICES[2]} for leaf in restored.values())
    assert not any(leaf.committed for leaf in restored.values())


def check_donated_state_tells_where_it_was(folder: str) -> None:
    state = jax.device_put(np.arange(8.0, dtype=np.float32), over("a"))
    checkpoint.save(folder, 1, [state])
    jax.jit(lambda x: x + 1, donate_argnums=0)(state)
    assert state.is_deleted()
    (restored,) = checkpoint.restore(folder, like=[state])
    assert restored.sharding == over("a")
    np.testing.assert_array_equal(restored, np.arange(8.0))
    jax.jit(lambda x: x + 1, donate_argnums=0)(restored)
    np.testing.assert_array_equal(checkpoint.restore(folder, like=[state])[0], np.arange(8.0))


def check_shardings_that_do_not_fit(folder: str) -> None:
    checkpoint.save(folder, 1, {"w": np.zeros((6, 3), np.float32)})
    shardings = {
        "should evenly divide": over("a"),
        "not implemented for `jax.sharding.AbstractMesh`": NamedSharding(
            MESH.abstract_mesh, PartitionSpec("b")
        ),
    }
    for reason, sharding in shardings.items():
        like = {"w": jax.ShapeDtypeStruct((6, 3), np.float32, sharding=sharding)}
        message = error_of(lambda like=like: checkpoint.restore(folder, like=like))
        assert "leaf `w` of `like` cannot be sharded as it says" in message, message
        assert reason in message, message


def error_of(work: Callable[[], object]) -> str:
    try:
        work()
    except CheckpointError as error:
        return str(error)
    raise AssertionError("no error")


def check_saving_takes_one_leaf_of_memory(folder: str) -> None:
    state = {
        str(n): jax.device_put(np.full((8, LARGE // 8), n, np.float32), over(*spec))
        for n, spec in enumerate([("a", "b"), (("b", "a"),), (None, "a"), ("a",), (), ("b",)])
    }
    tracemalloc.start()
    path = checkpoint.save(folder, 1, state)
    left, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = 4 * LARGE
    # A thread of orbax's may still hold the last one.
    assert most < (2.5 if with_orbax.is_installed() else 1.5) * size, most / size
    assert left < 0.5 * size, left / size  # arrays keep no copies
    assert path is not None
    files = [file for file in Path(path).rglob("*") if file.is_file()] or [Path(path)]
    written = sum(file.stat().st_size for file in files)
    assert len(state) * size < written < (len(state) + 0.5) * size  # each shard once
    require_same(checkpoint.restore(folder, like=state), state)


def main() -> None:
    assert len(DEVICES) == 8
    with_orbax._MOST_AT_ONCE = 2**20  # a large leaf is alone
    checks = [value for name, value in globals().items() if name.startswith("check_")]
    for kind in KINDS:
        with_orbax.is_installed = lambda kind=kind: kind == "orbax"
        for check in checks:
            with tempfile.TemporaryDirectory() as folder:
                check(folder)
                print(kind, check.__name__, flush=True)


if __name__ == "__main__":
    main()
