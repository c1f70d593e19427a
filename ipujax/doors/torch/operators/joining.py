"""PyTorch concatenation and split operators."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

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


def _register_joining(name: str, function: Callable[..., jax.Array]) -> None:
    @operator(f"aten.{name}.default", takes_call=True)
    def join(call: Call, tensors: Sequence[jax.Array]) -> jax.Array:
        return function(_cast_to_result_dtype(call, tensors))


def _cast_to_result_dtype(call: Call, tensors: Sequence[jax.Array]) -> list[jax.Array]:
    return [x.astype(call.aval.dtype) for x in tensors]


for _name, _function in {
    "hstack": jnp.hstack, "vstack": jnp.vstack, "row_stack": jnp.vstack, "dstack": jnp.dstack,
    "column_stack": jnp.column_stack,
    "block_diag": lambda tensors: jax.scipy.linalg.block_diag(*tensors),
}.items():  # fmt: skip
    _register_joining(_name, _function)


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


@operator("aten.hsplit.int", "aten.vsplit.int", "aten.dsplit.int", takes_call=True)
def split_by_operator_name(call: Call, x: jax.Array, sections: int) -> list[jax.Array]:
    return split(call, x, sections, _axis_of_split_name(call, x))


@operator("aten.hsplit.array", "aten.vsplit.array", "aten.dsplit.array", takes_call=True)
def split_at_by_operator_name(call: Call, x: jax.Array, indices: Sequence[int]) -> list[jax.Array]:
    return split_at(x, indices, _axis_of_split_name(call, x))


def _axis_of_split_name(call: Call, x: jax.Array) -> int:
    if "vsplit" in call.node.operator:
        return 0
    return 2 if "dsplit" in call.node.operator else min(x.ndim - 1, 1)


@operator("aten.tensor_split.indices")
def split_at(x: jax.Array, indices: Sequence[int], axis: int = 0) -> list[jax.Array]:
    full_slices = (slice(None),) * (axis % x.ndim)
    bounds = itertools.pairwise((0, *indices, None))
    return [x[(*full_slices, slice(start, end))] for start, end in bounds]


@operator("aten.unbind.int", "aten.unbind_copy.int")
def unbind(x: jax.Array, axis: int = 0) -> list[jax.Array]:
    return [jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]


@operator("aten.meshgrid.default", "aten.meshgrid.indexing")
def meshgrid(tensors: Sequence[jax.Array], *, indexing: str = "ij") -> list[jax.Array]:
    return jnp.meshgrid(*[x.reshape(-1) for x in tensors], indexing=indexing)


@operator("aten.cartesian_prod.default")
def cartesian_prod(tensors: Sequence[jax.Array]) -> jax.Array:
    if len(tensors) == 1:
        return tensors[0]
    return jnp.stack([grid.reshape(-1) for grid in meshgrid(tensors)], -1)
