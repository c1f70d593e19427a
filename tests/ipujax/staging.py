"""What tests of stages in a function share: models, and the distance between gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.scopes import pipeline_stage


def normal(seed: int, *shape: int) -> jax.Array:
    """Numbers that differ, the same in each run."""
    return jax.random.normal(jax.random.key(seed), shape)


def relative_distance(tree: Any, expected: Any) -> float:
    """The 2-norm of the difference of two trees over the 2-norm of the second."""
    assert jax.tree.structure(tree) == jax.tree.structure(expected)
    pairs = list(zip(jax.tree.leaves(tree), jax.tree.leaves(expected), strict=True))
    for leaf, other in pairs:
        assert (leaf.shape, leaf.dtype) == (other.shape, other.dtype)
    difference = sum(np.sum(np.abs(np.float64(a) - np.float64(b)) ** 2) for a, b in pairs)
    return float(np.sqrt(difference / sum(np.sum(np.abs(np.float64(b)) ** 2) for _, b in pairs)))


def take_part(tree: Any, number: int, micro_batches: int) -> Any:
    """One micro-batch of an argument that is split."""

    def take(leaf: Any) -> Any:
        if leaf.ndim:
            return leaf.reshape(micro_batches, -1, *leaf.shape[1:])[number]
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.fold_in(leaf, number) if is_key else leaf

    return jax.tree.map(take, tree)


def value_and_grad_of_mean(
    loss: Callable[..., Any],
    micro_batches: int,
    *,
    argnums: Any = 0,
    has_aux: bool = False,
    batch_argnums: int | None = None,
) -> Callable[..., Any]:
    """`jax.value_and_grad` of the mean loss over the micro-batches."""

    def mean_loss(*args: Any) -> Any:
        named = {number % len(args) for number in np.ravel(argnums).tolist()}
        split = {*range(len(args))} - named if batch_argnums is None else {batch_argnums}
        results = [
            loss(*(take_part(x, m, micro_batches) if i in split else x for i, x in enumerate(args)))
            for m in range(micro_batches)
        ]
        losses = [result[0] for result in results] if has_aux else results
        mean = sum(losses) / micro_batches
        if not has_aux:
            return mean
        return mean, jax.tree.map(lambda *xs: jnp.stack(xs), *(result[1] for result in results))

    return jax.value_and_grad(mean_loss, argnums, has_aux=has_aux)


# --- an MLP ---------------------------------------------------------------------------------------


def mlp_params(stages: int = 2) -> Any:
    return {f"w{i}": normal(i, 8, 8) for i in range(stages)} | {"bias": jnp.zeros(8)}


def mlp_batch(size: int = 16) -> Any:
    return {"x": normal(10, size, 8), "y": normal(11, size, 8)}


def mlp_loss(params: Any, batch: Any) -> Any:
    """The loss of an MLP with a stage for each of its weights."""
    hidden = batch["x"]
    for i in range(len(params) - 1):
        with pipeline_stage(i):
            hidden = jnp.tanh(hidden @ params[f"w{i}"])
    with pipeline_stage(len(params) - 2):
        return jnp.mean((hidden + params["bias"] - batch["y"]) ** 2)
