"""Runs one example on both engines, with marks, and compares with `jax.jit`."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ipujax as ipu
from tests.sweep.examples import Example, on

Function = Callable[..., Any]

_CASTS = (jnp.bfloat16, jnp.complex64, jnp.float16, jnp.int32)
# What JAX raises for a dtype that a function does not take.
_REFUSALS = (TypeError, ValueError, NotImplementedError)
_ULPS = 32


def check(example: Example) -> None:
    """Fails if an engine gives other numbers than `jax.jit`, or the program has no report."""
    program = _program(example)
    wanted = jax.jit(program)(*example.args)
    for engine in ("fused", "replay"):
        compiled = ipu.compile(program, engine=engine)
        _same(compiled(*example.args), wanted, example.exact, engine)
    assert ipu.compile(program).lower(*example.args).report().cycles > 0


def _program(example: Example) -> Function:
    """One function of the example's arguments: its value, derivative, batch, and another dtype."""
    marked = _marked(example.call)
    parts = {"value": marked, "derivative": _derivative(marked), "batch": _batch(marked)}
    for lacking in example.lacks:
        del parts[lacking]
    cast = _cast(marked, _CASTS[zlib.crc32(example.name.encode()) % len(_CASTS)])

    def program(*args: Any) -> dict[str, Any]:
        results = {name: part(*args) for name, part in parts.items()}
        if example.casts:
            with contextlib.suppress(*_REFUSALS):
                results["cast"] = cast(*args)
        return results

    return program


def _marked(call: Function) -> Function:
    """What a function needs is made on IPU 0, it stands on IPU 1, and IPU 0 uses its results."""

    def marked(*args: Any) -> Any:
        return on(0, _used)(on(1, call)(*on(0, _used)(args)))

    return marked


def _used(tree: Any) -> Any:
    """The same values, dtypes and weak types, after an operation that is worth a kernel."""

    def use(leaf: Any) -> Any:
        dtype = jnp.result_type(leaf)
        if dtype == jnp.bool_:
            return jnp.logical_or(leaf, False)
        return leaf * 1 if jnp.issubdtype(dtype, jnp.number) else lax.optimization_barrier(leaf)

    return jax.tree.map(use, tree)


def _derivative(call: Function) -> Function:
    def derivative(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        places = [i for i, leaf in enumerate(leaves) if _is_inexact(leaf)]

        def total(chosen: Sequence[Any]) -> Any:
            filled = dict(enumerate(leaves)) | dict(zip(places, chosen, strict=True))
            results = jax.tree.leaves(call(*jax.tree.unflatten(tree, list(filled.values()))))
            parts = [jnp.sum(jnp.real(leaf)) for leaf in results if _is_inexact(leaf)]
            return sum(parts) if parts else jnp.zeros(())

        return jax.grad(total)([leaves[i] for i in places]) if places else ()

    return derivative


def _batch(call: Function) -> Function:
    def batch(*args: Any) -> Any:
        return jax.vmap(call)(*jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), args))

    return batch


def _cast(call: Function, dtype: Any) -> Function:
    def convert(leaf: Any) -> Any:
        if jnp.result_type(leaf) != jnp.float32:
            return leaf
        return (leaf * 8).astype(dtype) if dtype == jnp.int32 else jnp.asarray(leaf, dtype)

    return lambda *args: call(*jax.tree.map(convert, args))


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _same(got: Any, wanted: Any, exact: bool, engine: str) -> None:
    """Fails unless structures, dtypes, weak types and shapes agree, and numbers nearly do."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted), engine
    paths = jax.tree_util.tree_leaves_with_path(wanted)
    for mine, (path, theirs) in zip(jax.tree.leaves(got), paths, strict=True):
        where = f"{engine}: result{jax.tree_util.keystr(path)}"
        assert jax.typeof(mine) == jax.typeof(theirs), where
        a, b = _plain(mine), _plain(theirs)
        if not jnp.issubdtype(theirs.dtype, jnp.inexact):
            np.testing.assert_array_equal(a, b, err_msg=where)
            continue
        eps = float(jnp.finfo(theirs.dtype).eps)
        limit = _ULPS * eps if exact else eps**0.5
        largest = np.max(np.abs(b), where=np.isfinite(b), initial=0.0)
        np.testing.assert_allclose(a, b, rtol=limit, atol=limit * largest, err_msg=where)


def _plain(leaf: Any) -> np.ndarray:
    """A leaf as numbers that NumPy can compare: keys as their data, small floats wide."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return np.asarray(leaf).astype(np.float64)
    return np.asarray(leaf)
