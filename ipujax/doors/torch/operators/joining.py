"""PyTorch concatenation and split operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.torch.operators.table import operator


@operator("aten.cat.default", "aten.concat.default", "aten.concatenate.default", takes_call=True)
def cat(call: Call, tensors: Sequence[jax.Array], axis: int = 0) -> jax.Array:
    """Concatenates tensors; empty vectors may be among tensors of any shape."""
    nonempty = [x for x in _cast_to_result_dtype(call, tensors) if x.shape != (0,)]
    return jnp.concatenate(nonempty, axis) if nonempty else jnp.zeros(call.aval.shape)


@operator("aten.stack.default", takes_call=True)
def stack(call: Call, tensors: Sequence[jax.Array], axis: int = 0) -> jax.Array:
    return jnp.stack(_cast_to_result_dtype(call, tensors), axis)


def _cast_to_result_dtype(call: Call, tensors: Sequence[jax.Array]) -> list[jax.Array]:
    return [x.astype(call.aval.dtype) for x in tensors]


_SPLITS = (
    "split.Tensor", "split.sizes", "split_with_sizes.default", "split_copy.Tensor",
    "split_with_sizes_copy.default", "chunk.default", "tensor_split.sections",
    "unsafe_split.Tensor", "unsafe_split_with_sizes.default", "unsafe_chunk.default",
)  # fmt: skip


@operator(*(f"aten.{name}" for name in _SPLITS), takes_call=True)
def split(call: Call, x: jax.Array, sizes_or_sections: Operand, axis: int = 0) -> list[jax.Array]:
    """Splits a tensor into the traced sizes."""
    sizes = [aval.shape[axis] for aval in call.node.avals[0]]
    ends = list(itertools.accumulate(sizes))
    return [
        jax.lax.slice_in_dim(x, end - size, end, axis=axis)
        for size, end in zip(sizes, ends, strict=True)
    ]


@operator("aten.unbind.int", "aten.unbind_copy.int")
def unbind(x: jax.Array, axis: int = 0) -> list[jax.Array]:
    return [jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]
