"""PyTorch distances and similarities of vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.torch.operators.axes import axes_to_reduce
from ipujax.doors.torch.operators.table import operator
from ipujax.doors.torch.operators.vector_norms import vector_norm


@operator("aten.pairwise_distance.default")
def pairwise_distance(
    x: jax.Array, y: jax.Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> jax.Array:
    return vector_norm(x - y + eps, p, (-1,), keepdim)


@operator("aten.cosine_similarity.default")
def cosine_similarity(x: jax.Array, y: jax.Array, dim: int = 1, eps: float = 1e-8) -> jax.Array:
    x, y = jnp.broadcast_arrays(x, y)
    axes = axes_to_reduce(x, dim)
    sizes = [jnp.maximum(vector_norm(v, 2, axes, True), eps) for v in (x, y)]
    return jnp.sum((x / sizes[0]) * (y / sizes[1]), axes)


@operator("aten.pdist.default", "aten._pdist_forward.default")
def pdist(x: jax.Array, p: float = 2.0) -> jax.Array:
    rows, columns = np.triu_indices(x.shape[0], 1)
    return vector_norm(x[rows] - x[columns], p, (-1,), False)
