"""Comparing the numbers of compiled functions with those of plain `jax.jit`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from lowering.jaxprs import jaxpr

# Bodies that `scattered` marks anew; those of custom derivatives are left as they are.
_SCATTERED_INSIDE = ("scan", "while", "cond", "jit", "pjit", "checkpoint")
_RUN = 3  # neighbouring equations on one IPU


def use_ipus(count: int) -> None:
    """Configures one device of `count` IPUs."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = count
    config.configure_ipu_system()


def same(got: Any, wanted: Any, *, exact: bool = True) -> None:
    """Fails unless both trees have equal structure, dtypes, shapes and numbers.

    Args:
      got: what a compiled function returned.
      wanted: what `jax.jit` of it returned.
      exact: bit for bit; otherwise up to the rounding of sums in another order.
    """
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    paths = jax.tree_util.tree_leaves_with_path(wanted)
    for mine, (path, theirs) in zip(jax.tree.leaves(got), paths, strict=True):
        where = f"result{jax.tree_util.keystr(path)}"
        assert _type_of(mine) == _type_of(theirs), where
        a, b = _plain(mine), _plain(theirs)
        if exact or not np.issubdtype(b.dtype, np.inexact):
            np.testing.assert_array_equal(a, b, err_msg=where)
        else:
            limit = _tolerance(theirs.dtype)
            np.testing.assert_allclose(a, b, rtol=limit, atol=limit, err_msg=where)


def _type_of(leaf: Any) -> tuple[Any, ...]:
    aval = jax.typeof(leaf)
    return aval.shape, aval.dtype, aval.weak_type


def _plain(leaf: Any) -> np.ndarray:
    """A leaf as numbers that NumPy can compare: keys as their data, small floats wide."""
    assert isinstance(leaf, jax.Array)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return np.asarray(leaf).astype(np.float64)
    return np.asarray(leaf)


def _tolerance(dtype: Any) -> float:
    return 1e-5 if dtype == jnp.complex64 else 100 * float(jnp.finfo(dtype).eps)


def scattered(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with its equations, those of its bodies too, dealt out to IPUs 0 and 1."""

    def marked(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
        results = _deal(closed.jaxpr, closed.consts, jax.tree.leaves(args), itertools.count())
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return marked


def _deal(
    jaxpr_: Any, consts: Sequence[Any], operands: Sequence[Any], numbers: Iterator[int]
) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr_.constvars, consts, strict=True))
    values.update(zip(jaxpr_.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jaxpr.Literal) else values[atom]

    for eqn in jaxpr_.eqns:
        with ipu.scopes.ipu_shard(next(numbers) // _RUN % 2):
            if eqn.primitive.name in _SCATTERED_INSIDE:
                eqn = jaxpr.map_sub_jaxprs(eqn, lambda body: _dealt_body(body, numbers))
            inputs = [read(atom) for atom in eqn.invars]
            values.update(zip(eqn.outvars, jaxpr.bind_equation(eqn, inputs), strict=True))
    return [read(atom) for atom in jaxpr_.outvars]


def _dealt_body(body: Any, numbers: Iterator[int]) -> Any:
    return jaxpr.trace_flat(
        lambda *operands: _deal(body.jaxpr, body.consts, operands, numbers), body.in_avals
    )
