"""Who is alive when: small programs whose steps can be told by hand, and promises for all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import schedules
from lowering.machine import Lifetime, Liveness, TileBytes
from tests.lowering.machine.samples import (
    BYTES,
    CHIP,
    TILES,
    A,
    M,
    check_liveness,
    modelled,
    pipeline,
    profile,
)
from tests.lowering.machine.test_residency import HALF, PROGRAMS, doubled, on, repeated


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_promises(name):
    check_liveness(modelled(PROGRAMS[name]()))


def test_the_promises_with_io_tiles():
    found = profile(jnp.sin, A, io_tiles=4)
    check_liveness(found)
    assert found.memory.tile_categories["activations"].shape == (1, TILES)


def lives(held, name=""):
    """(operation, first, last) of what is not always there, by its beginning."""
    own = [t for t in held.tensors if t.first is not None and name in t.name]
    return [(t.operation, t.first, t.last) for t in sorted(own, key=lambda t: t.first)]


def test_operations_of_a_kernel_are_steps():
    """A sum needs all of y, which the second product reads again."""

    def fn(x, w):
        y = jnp.cumsum(x @ w, axis=0)
        return (y @ w) + y.sum()

    (held,) = profile(fn, M, M).liveness
    products = [i for i, name in enumerate(held.names) if name.startswith("dot_general")]
    assert [held.names[i] for i in products] == ["dot_general float32[64,64]"] * 2
    assert all("test_liveness.py" in held.origins[i] for i in products)
    first, second = products
    assert held.temporary_bytes[second] > 0
    named = {t.operation: t for t in held.tensors if t.first is not None and "64,64" in t.name}
    assert (named["dot_general"].first, named["cumsum"].first) in ((second, 1), (first, 1))
    assert named["cumsum"].last >= second
    (result,) = [t for t in held.tensors if t.value is not None and t.first is not None]
    assert result.last == len(held.names) - 1


def test_names_are_those_of_operations():
    found = profile(lambda x, w: jnp.tanh(x @ w).sum(), M, M)
    titles = {operation.name for operation in found.operations}
    assert set(found.liveness[0].names) <= titles
    lines = {operation.origin for operation in found.operations}
    assert set(found.liveness[0].origins) <= lines


def test_results_live_on_as_values():
    """What the first kernel leaves is one tensor, from what makes it to its last reader."""

    def fn(x):
        y = doubled(x)
        z = on(1, lambda a: a * 2, y)
        return on(0, lambda z: y + z, z)

    held, _ = profile(fn, HALF, ipus=2).liveness
    (made,) = [t for t in held.tensors if t.operation == "concatenate"]
    assert held.names[made.first].startswith("concatenate")
    assert made.value is not None
    assert made.last >= held.names.index("copy 1 -> 0")


def test_who_takes_over_memory_has_a_life_of_its_own():
    (held,) = profile(lambda x: jnp.sin(jnp.cumsum(x)), A).liveness
    assert lives(held) == [("cumsum", 0, 0), ("sin", 1, 1)]
    assert (held.bytes - held.temporary_bytes).tolist() == [BYTES, BYTES]


def test_arguments_and_constants_are_always_there():
    table = np.arange(1024, dtype=np.float32)
    (held,) = profile(lambda x: x * jnp.asarray(table), A).liveness
    always = [(t.operation, t.category) for t in held.tensors if t.first is None]
    assert always == [("argument", "variables"), ("constant", "constants")]
    assert all(t.alive_at(step) for t in held.tensors if t.first is None for step in (0, 99))


def test_bodies_of_loops_are_walked_once():
    def fn(x):
        return lax.fori_loop(0, 1000, lambda _, c: jnp.sin(jnp.cumsum(c)), x)

    (held,) = profile(fn, A).liveness
    kinds = [name.split()[0] for name in held.names]
    assert kinds.count("cumsum") == kinds.count("sin") == 1
    assert kinds.index("scan") < kinds.index("cumsum") < kinds.index("sin")


def test_loop_variables_outlive_their_loop():
    """y's memory is the variable's, and then the result's."""

    def fn(x):
        y = doubled(x)
        return repeated(lambda c: (on(0, lambda a: a + 1, on(1, lambda c: c * 2, c)),), y)

    held, _ = profile(fn, HALF, ipus=2).liveness
    variables = [t for t in held.tensors if t.category == "variables" and t.first is not None]
    assert {t.operation for t in variables} >= {"loop variable"}
    assert max(t.last for t in variables) == len(held.names) - 1


def test_steps_do_not_grow_with_micro_batches():
    few, many = (modelled(pipeline(2, n, schedules.sequential)).liveness for n in (4, 64))
    assert [held.names for held in few] == [held.names for held in many]


def test_steps_say_which_operation_they_are():
    found = modelled(pipeline(2, 4, schedules.sequential))
    known = {(one.ipu, one.number): (one.name, one.origin) for one in found.operations}
    for ipu, held in enumerate(found.liveness):
        called = list(zip(held.names, held.origins, strict=True))
        told = {i: number for i, number in enumerate(held.operations) if number is not None}
        assert len(told) > 1
        assert {known[ipu, number] == called[i] for i, number in told.items()} == {True}
        others = {name for i, (name, _) in enumerate(called) if i not in told}
        assert others == {"copy 0 -> 1", "copy 1 -> 0"}


def test_who_is_alive_largest_first():
    held = Liveness(
        names=("a", "b"),
        origins=("", ""),
        operations=(None, None),
        bytes=np.array([8, 12]),
        temporary_bytes=np.array([0, 4]),
        tensors=tuple(
            Lifetime(
                name=name,
                category="activations",
                operation="add",
                origin="",
                mapping=TileBytes(np.array([bytes_, 0])),
                first=first,
                last=last,
            )
            for name, bytes_, first, last in (("x", 2, 0, 0), ("y", 6, 0, 1), ("z", 9, None, None))
        ),
    )
    assert held.worst == 1
    assert [t.name for t in held.alive_at(0)] == ["z", "y", "x"]
    assert [t.name for t in held.alive_at(1)] == ["z", "y"]
    assert held.tensors[2].total_bytes == 9


def test_programs_without_steps():
    (held,) = profile(lambda: (), ipus=1).liveness
    assert (held.worst, len(held.bytes), held.alive_at(0)) == (0, 0, [])


def test_memory_by_tile_shows_work_space_where_it_is():
    found = profile(jnp.matmul, M, M)
    temporaries = found.memory.tile_categories["temporaries"][0]
    (held,) = found.liveness
    assert temporaries.sum() == held.temporary_bytes[held.worst] > 0
    assert set(temporaries.tolist()) <= {0, temporaries.max()}
    assert found.memory.limit == CHIP.usable_bytes_per_tile


def test_branches_follow_each_other():
    def fn(n, x):
        return lax.cond(n > 0, jnp.sin, jnp.cumsum, x)

    (held,) = profile(fn, jax.ShapeDtypeStruct((), jnp.int32), A).liveness
    kinds = [name.split()[0] for name in held.names]
    assert {"sin", "cumsum"} <= set(kinds)
    assert (held.bytes - held.temporary_bytes).max() < 2 * BYTES
