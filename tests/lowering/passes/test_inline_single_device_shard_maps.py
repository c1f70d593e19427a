"""`shard_map` over one device and values typed by its mesh are plain functions and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import ipujax as ipu
from lowering.jaxprs import jaxpr
from lowering.passes import inline_single_device_shard_maps
from tests.lowering.samples import jaxpr_text, trace
from tests.numbers import same, use_ipus

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
ROWS = P("d")
AUTO = Mesh(np.array(jax.devices()[:1]), ("d",))
EXPLICIT = jax.make_mesh((1,), ("d",), (AxisType.Explicit,), devices=jax.devices()[:1])
BOTH = jax.make_mesh((1, 1), ("d", "e"), (AxisType.Auto,) * 2, devices=jax.devices()[:1])


def over(
    fn: Callable[..., Any], mesh: Mesh = AUTO, ins: Any = ROWS, outs: Any = ROWS, **more: Any
) -> Callable[..., Any]:
    return lambda *xs: jax.shard_map(fn, mesh=mesh, in_specs=ins, out_specs=outs, **more)(*xs)


def collected(y: Any) -> Any:
    gathered = lax.all_gather(y, "d", tiled=True) + lax.all_gather(y, "d").sum(0)
    scattered = lax.psum_scatter(y, "d", tiled=True) + lax.psum_scatter(y[None], "d")
    moved = lax.ppermute(y, "d", [(0, 0)]) + lax.ppermute(y, "d", [])
    turned = lax.all_to_all(y[None], "d", 0, 2)[:, :, 0]
    spread = lax.pmax(y, "d") - lax.pmin(y, "d") * 2 + lax.pmean(y, "d")
    return gathered + scattered + moved + turned + spread + lax.axis_index("d") + lax.axis_size("d")


def looped(y: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: c + lax.pmean(c, "d") * lax.axis_index("d") + y, y)


def varying(y: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: c + lax.psum(lax.pcast(c, "d", to="varying"), "d"), y)


CASES: dict[str, Callable[[Any], Any]] = {
    "collectives": over(collected, check_vma=False),
    "loop": over(looped, check_vma=False),
    "checked loop": over(varying, ins=P(), outs=P()),
    "branch": over(lambda y: lax.cond(y.sum() > 0, lambda: jnp.exp(y), lambda: y)),
    "jit": over(jax.jit(lambda y: jax.nn.relu(y) * lax.axis_index("d") + jax.nn.softmax(y))),
    "two axes": over(lambda y: lax.psum(y, ("d", "e")), BOTH, P("d", "e"), P(None, None)),
    "one of two axes": over(lambda y: y * 2 + lax.axis_index("d"), BOTH, axis_names={"d"}),
    "derivative": jax.grad(over(lambda y: lax.psum((jnp.sin(y) ** 2).sum(), "d"), outs=P())),
    "vmap": jax.vmap(over(lambda y: y - lax.pmean(y, "d"))),
    "explicit": lambda x: over(jnp.sin, EXPLICIT, P(None), P(None))(x) @ jnp.ones((3, 2)) + 1,
    "explicit in a loop": lambda x: lax.scan(
        lambda c, row: (over(jnp.sin, EXPLICIT, P(None), P(None))(c) + row.sum(), c.sum()), x, x
    ),
    "resharded": lambda x: jax.sharding.reshard(x * 2, NamedSharding(EXPLICIT, P(None))) + 1,
    "pmap": lambda x: jax.pmap(lambda y: lax.psum(y, "i"), axis_name="i")(x[None]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_pass_keeps_the_numbers(name: str) -> None:
    closed = trace(CASES[name], X)
    opened = inline_single_device_shard_maps(closed)
    text = str(opened)
    assert "shard_map" not in text
    assert "@d" not in text
    got = jaxpr.run_equations(opened.jaxpr, opened.consts, [X])
    for mine, theirs in zip(got, jax.tree.leaves(jax.jit(CASES[name])(X)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_without_a_mesh_nothing_changes() -> None:
    closed = trace(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, x), X)
    assert inline_single_device_shard_maps(closed) is closed


@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_maps_over_one_device_run(engine: str) -> None:
    use_ipus(4)
    for name in ("collectives", "explicit in a loop", "derivative"):
        same(ipu.compile(CASES[name], engine=engine)(X), jax.jit(CASES[name])(X), exact=False)


def test_marks_are_kept() -> None:
    def fn(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            y = over(lambda y: y * 2)(x)
        with ipu.scopes.ipu_shard(1):
            return over(jnp.sin)(y)

    use_ipus(2)
    lowered = ipu.compile(fn).lower(X)
    assert lowered.program.ipus == 2
    same(ipu.compile(fn, engine="replay")(X), jax.jit(fn)(X))


def test_the_text(golden: Any) -> None:
    golden(
        jaxpr_text(inline_single_device_shard_maps(trace(over(lambda x: lax.psum(x, "d") + 1), X)))
    )
