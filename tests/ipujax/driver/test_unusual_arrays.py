"""Arrays that few programs have: of 2, 4 and 8 bits, of float0, keys, and without elements.

They are arguments and results, carried by loops, given to branches, moved between IPUs, fed, sent
and saved, with one replica and with several.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ExecutableError
from tests.conftest import RunWithDevices
from tests.ipujax.feeding import configure, infeed, outfeed

FLOAT0 = jax.dtypes.float0
SMALL = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e4m3fn", "float8_e8m0fnu")
KINDS = (*SMALL, "bool", "complex64", "key", "float0", "no elements")
ENGINES = ("fused", "replay")


def sample(kind: str) -> Any:
    """Four of them."""
    if kind == "key":
        return jax.random.split(jax.random.key(3), 4)
    if kind == "float0":
        return np.zeros(4, FLOAT0)
    if kind == "no elements":
        return jnp.zeros((0, 4))
    return (jnp.arange(4.0) % 2 + 1).astype(kind)


def changed(x: Any) -> Any:
    """Other ones, if there can be others."""
    if x.dtype == FLOAT0:
        return x
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x[::-1]
    if str(x.dtype) in SMALL:  # XLA's own operations on CPUs do not know all of these
        return jnp.roll(x.astype(jnp.float32), 1, -1).astype(x.dtype)
    return jnp.roll(x, 1, -1)


def numbers(x: Any) -> np.ndarray:
    if x.dtype == FLOAT0:
        return np.zeros(x.shape)
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(x))
    return np.asarray(x).astype(complex)


def check_same(mine: Any, theirs: Any) -> None:
    for own, other in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_array_equal(numbers(own), numbers(other))


def carried(x: Any) -> Any:
    """Through a scan, a while loop and a branch; counted, as float0 alone makes no loop."""

    def step(carry: Any, _: Any) -> Any:
        number, y = carry
        return (number + 1, changed(y)), y

    (number, y), each = jax.lax.scan(step, (0, x), None, length=2)
    _, y = jax.lax.while_loop(lambda c: c[0] < 4, lambda c: step(c, None)[0], (number, y))
    return jax.lax.cond(number > 1, changed, lambda y: y, y), each


def between_ipus(x: Any) -> Any:
    with ipu.scopes.ipu_shard(0):
        y = changed(x)
    with ipu.scopes.ipu_shard(1):
        z = changed(y)
    return y, z, x


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "given back": lambda x: (x, changed(x), jnp.float32(1)),
    "carried": carried,
    "between IPUs": between_ipus,
}


def check_program(name: str, kind: str, engine: str) -> None:
    """With one replica and with several."""
    x, program = sample(kind), PROGRAMS[name]
    wanted = jax.jit(program)(x)
    for ipus in (2, 4):
        configure(ipus)
        compiled = ipu.compile(program, engine=engine)
        check_same(compiled(x), wanted)
        check_same(compiled(x), wanted)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_programs_take_and_give_them(kind: str, name: str, engine: str) -> None:
    check_program(name, kind, engine)


def test_replicas_and_ipus_on_devices_of_their_own(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        """
        from tests.ipujax.driver import test_unusual_arrays as here

        for kind in ("int4", "float4_e2m1fn", "float0", "no elements"):
            for name in here.PROGRAMS:
                here.check_program(name, kind, "replay")
            if kind != "float0":
                here.drop_recomputed_enqueues(kind, "fused", ipus=4)
        """,
    )


def drop_recomputed_enqueues(kind: str, engine: str, ipus: int) -> None:
    """Elements that are fed, carried and sent; each replica has elements of its own."""
    configure(ipus)
    x = sample(kind)
    elements = [{"a": each, "b": np.float32(1)} for each in (x, changed(x)) for _ in range(ipus)]
    source, sink = infeed(elements), outfeed()

    def body(last: Any, a: Any, b: Any) -> Any:
        sink.enqueue({"last": last, "a": changed(a), "b": b})
        return a

    run = ipu.compile(lambda x: ipu.loops.repeat(2, body, [x], source), engine=engine)
    check_same(run(x), changed(x))
    sent = sink.dequeue()
    for number, wanted in enumerate((changed(x), changed(changed(x)))):
        of_all = [sent["a"][number]] if ipus == 1 else list(sent["a"][number])
        for own in of_all:
            check_same(own, wanted)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("ipus", [1, 2])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "float0"])
def test_queues_carry_them(kind: str, engine: str, ipus: int) -> None:
    drop_recomputed_enqueues(kind, engine, ipus)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith("int2")])
def test_saved_programs_take_and_give_them(kind: str, tmp_path: Path) -> None:
    configure(2)
    x = sample(kind)
    executable = ipu.compile(PROGRAMS["given back"]).lower(x).compile()
    executable.save(tmp_path / "saved")
    check_same(ipu.load_executable(tmp_path / "saved")(x), PROGRAMS["given back"](x))


def test_what_jax_cannot_export_is_refused(tmp_path: Path) -> None:
    configure(1)
    executable = ipu.compile(PROGRAMS["given back"]).lower(sample("int2")).compile()
    with pytest.raises(ExecutableError, match="int2"):
        executable.save(tmp_path / "saved")


def test_gradients_of_integers() -> None:
    """`allow_int` gives float0, which a program may also take back, and which its avals tell."""
    configure(4)

    def gradients(x: Any, i: Any) -> Any:
        return jax.grad(lambda x, i: (x * i).sum(), (0, 1), allow_int=True)(x, i)

    x, i = jnp.ones(4), jnp.arange(4)
    mine = ipu.compile(gradients)(x, i)
    for engine in ENGINES:
        check_same(ipu.compile(gradients, engine=engine)(x, i), jax.jit(gradients)(x, i))
    check_same(mine, jax.jit(gradients)(x, i))
    traced = ipu.compile(gradients).trace(x, i)
    assert traced.out_avals[1].dtype == FLOAT0  # pyright: ignore[reportIndexIssue]
    check_same(ipu.compile(lambda g: g)(mine[1]), mine[1])
    check_same(
        ipu.compile(lambda x, t: jax.jvp(lambda x: x * 2, (x,), (t,)))(i, mine[1])[1], mine[1]
    )


def test_a_result_without_elements_of_several_replicas(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        """
        import jax.numpy as jnp
        import ipujax as ipu
        from tests.ipujax.feeding import configure

        configure(4)
        for engine in ("auto", "fused", "replay"):
            empty, total = ipu.compile(lambda x: (x[:0] * 2, x.sum()), engine=engine)(jnp.eye(4))
            assert empty.shape == (0, 4)
            assert total == 4
        """,
    )
