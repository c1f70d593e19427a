"""What is saved is what is restored, in both kinds of files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from ipujax import checkpoint
from ipujax.checkpoints import store
from ipujax.errors import CheckpointError
from tests.ipujax.checkpoints import trees
from tests.ipujax.checkpoints.trees import KINDS, NUMPY, OF_JAX, State, same

NAMES = (
    *("", "a b", "ä", "\udc80", "a\0b", "../x", "/", "a/b/", "ipujax.json", ".npy", "%41", "A"),
    *("a\\b", "a'[0]", "x" * 500),
)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    trees.use(request.param, monkeypatch)
    return request.param


def test_a_state_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    state = trees.state()
    path = checkpoint.save(tmp_path / "a" / "b", 12, state)
    assert os.path.isdir(path) == (kind == "orbax")
    assert path == str(tmp_path / "a" / "b" / os.path.basename(path))
    same(checkpoint.restore(tmp_path / "a" / "b", like=state), state)


def test_a_structure_of_shapes_gives_arrays_of_jax(kind: str, tmp_path: Path) -> None:
    tree = {"x": np.float32([1, 2]), "key": jax.random.key(0)}
    checkpoint.save(tmp_path, 0, tree)
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
    got = checkpoint.restore(tmp_path, like=like)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(got))
    same(got, tree)


def test_without_a_structure_arrays_have_names(kind: str, tmp_path: Path) -> None:
    state = trees.state()
    checkpoint.save(tmp_path, 3, state)
    leaves = jax.tree_util.tree_leaves_with_path(state)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    got = checkpoint.restore(tmp_path)
    assert list(got) == names
    assert {"variables/dense/kernel", "variables/blocks/1/first", "step"} <= got.keys()
    for name, (_, leaf) in zip(names, leaves, strict=True):
        is_number = isinstance(leaf, (int, float))
        assert trees.bits(got[name]) == trees.bits(np.asarray(leaf) if is_number else leaf)
        is_key = jnp.issubdtype(getattr(leaf, "dtype", np.int32), jax.dtypes.prng_key)
        assert isinstance(got[name], jax.Array if is_key else np.ndarray)


@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_every_dtype_is_kept(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    tree = {dtype: trees.array(dtype, shape) for dtype in (*NUMPY, *OF_JAX)}
    checkpoint.save(tmp_path, 0, tree)
    same(checkpoint.restore(tmp_path), tree)
    same(checkpoint.restore(tmp_path, like=tree), tree)
    on_device = {dtype: jnp.asarray(trees.array(dtype, shape)) for dtype in OF_JAX}
    checkpoint.save(tmp_path, 1, on_device)
    same(checkpoint.restore(tmp_path, like=on_device), on_device)


def test_every_dtype_is_there() -> None:
    """A dtype that is new in NumPy's extensions belongs into the tests."""
    kinds = [getattr(ml_dtypes, name) for name in dir(ml_dtypes)]
    names = {np.dtype(each).name for each in kinds if isinstance(each, type) and each is not object}
    of_no_jax = {"float64", "int1", "uint1", "float6_e2m3fn", "float6_e3m2fn"}
    assert {n for n in names if hasattr(jnp, n)} - of_no_jax <= {*OF_JAX, *NUMPY}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12)[::-2],
        np.arange(3, dtype=">i4"),
        np.broadcast_to(np.float32(2), (3, 2)),
    ],
    ids=["transposed", "strided", "big endian", "broadcast"],
)
def test_arrays_may_lie_in_memory_as_they_like(array: Any, kind: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, [array])
    got = checkpoint.restore(tmp_path)["0"]
    np.testing.assert_array_equal(got, array)
    assert got.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize("tree", [None, {}, [], {"a": None, "b": ()}], ids=str)
def test_trees_may_be_empty(tree: Any, kind: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, tree)
    assert checkpoint.restore(tmp_path) == {}
    if tree is not None:
        assert checkpoint.restore(tmp_path, like=tree) == tree


def test_names_may_hold_any_character(kind: str, tmp_path: Path) -> None:
    tree = {name: np.float32(i) for i, name in enumerate(NAMES)}
    checkpoint.save(tmp_path, 0, tree)
    same(checkpoint.restore(tmp_path), tree)
    checkpoint.save(tmp_path, 1, np.float32(5))
    same(checkpoint.restore(tmp_path), {"": np.asarray(np.float32(5))})


def test_two_leaves_of_one_name_are_refused(kind: str, tmp_path: Path) -> None:
    tree = {"a/b": 1, "a": {"b": 2}}
    with pytest.raises(CheckpointError, match="two leaves of the tree have the name 'a/b'"):
        checkpoint.save(tmp_path, 0, tree)
    assert os.listdir(tmp_path) == []


def test_python_numbers_come_back_as_such(kind: str, tmp_path: Path) -> None:
    tree = {"int": 2**40, "bool": True, "float": 0.1, "complex": 1j, "numpy": np.int16(3)}
    checkpoint.save(tmp_path, 0, tree)
    got = checkpoint.restore(tmp_path, like=tree)
    assert got == tree
    assert {name: type(v) for name, v in got.items()} == {n: type(v) for n, v in tree.items()}


def test_another_structure_is_told_apart_by_names(kind: str, tmp_path: Path) -> None:
    saved = State({"w": jnp.zeros((2, 3)), "old": jnp.zeros(1), "key": jax.random.key(0)}, step=1)
    checkpoint.save(tmp_path, 0, saved)
    like = State({"w": jnp.zeros((3, 2)), "new": jnp.zeros(1), "key": jnp.zeros(2, jnp.uint32)})
    with pytest.raises(CheckpointError) as caught:
        checkpoint.restore(tmp_path, like=like)
    lines = [line.strip() for line in str(caught.value).splitlines()]
    assert "not in it: variables/new" in lines
    assert "only in it: variables/old" in lines
    wrong = "variables/key (key<fry>[], wanted uint32[2]), "
    wrong += "variables/w (float32[2,3], wanted float32[3,2])"
    assert f"other in it: {wrong}" in lines


@pytest.mark.parametrize(
    ("saved", "like", "what"),
    [
        (jnp.ones(2), jnp.ones(2, jnp.bfloat16), r"float32\[2\], wanted bfloat16\[2\]"),
        (jnp.ones(2), 1.0, r"float32\[2\], wanted a Python float"),
        (1.5, 1, r"float64\[\], wanted a Python int"),
        (True, 1, r"bool\[\], wanted a Python int"),
        (1, True, r"int64\[\], wanted a Python bool"),
        (jax.random.key(0), 1, r"key<fry>\[\], wanted a Python int"),
    ],
)
def test_leaves_must_fit(saved: Any, like: Any, what: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, {"x": saved})
    with pytest.raises(CheckpointError, match=what):
        checkpoint.restore(tmp_path, like={"x": like})


def test_steps_are_found(kind: str, tmp_path: Path) -> None:
    assert checkpoint.latest_step(tmp_path / "none") is None
    assert checkpoint.latest_step(tmp_path) is None
    for step in (np.int32(9), 10, 100):
        checkpoint.save(tmp_path, step, {"step": step})
    assert checkpoint.latest_step(tmp_path) == 100
    assert checkpoint.restore(tmp_path)["step"] == 100
    assert checkpoint.restore(tmp_path, step=9)["step"] == 9
    with pytest.raises(
        CheckpointError, match=r"(?s)no checkpoint of step 11\n.*it has: 9, 10, 100$"
    ):
        checkpoint.restore(tmp_path, step=11)
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        checkpoint.restore(tmp_path / "none", step=11)


def test_the_last_ones_are_kept(kind: str, tmp_path: Path) -> None:
    def steps() -> list[int]:
        return sorted(int(name.removesuffix(".npz")[5:]) for name in os.listdir(tmp_path))

    for step in range(7):
        checkpoint.save(tmp_path, step, {})
    assert steps() == [2, 3, 4, 5, 6]
    checkpoint.save(tmp_path, 7, {}, keep=None)
    checkpoint.save(tmp_path, 8, {}, keep=0)
    assert steps() == [2, 3, 4, 5, 6, 7, 8]
    checkpoint.save(tmp_path, 1, {}, keep=3)  # what was saved stays, even so
    assert steps() == [1, 7, 8]
    checkpoint.save(tmp_path, 0, {}, keep=1)
    assert steps() == [0]


def test_a_step_may_be_saved_again(kind: str, tmp_path: Path) -> None:
    for value in (1.0, 2.0, 3.0):
        checkpoint.save(tmp_path, 5, {"x": np.float32(value)}, keep=2)
        assert checkpoint.restore(tmp_path)["x"] == value
        assert len(os.listdir(tmp_path)) == 1


def test_kinds_may_be_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step, each in ((1, "npz"), (2, "orbax"), (2, "npz"), (3, "orbax"), (3, "npz")):
        trees.use(each, monkeypatch)
        checkpoint.save(tmp_path, step, {"kind": step * 10 + (each == "npz")}, keep=2)
        assert checkpoint.restore(tmp_path)["kind"] == step * 10 + (each == "npz")
    assert checkpoint.restore(tmp_path, step=2)["kind"] == 21
    assert len(os.listdir(tmp_path)) == 2


def test_what_is_left_out_is_not_read(kind: str, tmp_path: Path) -> None:
    tree = {"a": {"x": np.ones(3)}, "b": np.zeros(4), "c": np.zeros((0, 2))}
    path = Path(checkpoint.save(tmp_path, 0, tree))
    wanted = {"a": tree["a"], "c": tree["c"]}
    same(store.restore_checkpoint(tmp_path, wanted, partly=True).tree, wanted)
    same(store.restore_checkpoint(tmp_path, {}, partly=True).tree, {})
    if kind == "npz":
        content = path.read_bytes()
        path.write_bytes(content.replace(np.zeros(4).tobytes(), b"x" * 32))
        same(store.restore_checkpoint(tmp_path, wanted, partly=True).tree, wanted)
        with pytest.raises(CheckpointError, match="is damaged: the numbers of `b` are others"):
            checkpoint.restore(tmp_path)
