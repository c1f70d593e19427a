"""What PyTorch's database of operators says to try: operators, and their arguments as modules."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.testing._internal import common_methods_invocations as database
from torch.utils import _pytree as pytree

from tests.torch_operators.rest import ANY_OF_EQUALS, NO_DERIVATIVE

DTYPES = {
    "float32": torch.float32,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
SUBJECTS = ("mathematics", "networks", "shapes", "special")

# Which helpers of the database a subject's operators have, beside those told by their names.
_SHAPES = frozenset(
    """T H mH mT arange argsort argwhere as_strided as_strided_copy as_strided_scatter alias_copy
    atleast_1d atleast_2d atleast_3d bfloat16 block_diag bool broadcast_shapes broadcast_tensors
    broadcast_to bucketize byte cartesian_prod cat cdouble cfloat chalf char chunk clone
    column_stack combinations constant_pad_nd contiguous diag diag_embed diagflat diagonal
    diagonal_copy diagonal_scatter double dsplit dstack empty empty_like empty_permuted
    empty_strided expand expand_as expand_copy eye fill flatten flip fliplr flipud float full
    full_like gather half hsplit hstack index_add index_copy index_fill index_put index_reduce
    index_select int item linspace logspace long masked_fill masked_scatter masked_select meshgrid
    movedim msort narrow narrow_copy new_empty new_empty_strided new_full new_ones new_zeros nonzero
    nonzero_static ones ones_like permute permute_copy put ravel repeat repeat_interleave reshape
    reshape_as resize_ resize_as_ roll rot90 scalar_tensor scatter scatter_add scatter_reduce
    searchsorted select select_scatter short slice slice_scatter sort split split_with_sizes
    split_with_sizes_copy squeeze squeeze_copy stack sum_to_size t t_copy take take_along_dim
    tensor_split tile to topk transpose transpose_copy tril tril_indices triu triu_indices unbind
    unbind_copy unflatten unfold unfold_copy unique unique_consecutive unravel_index unsafe_chunk
    unsafe_split unsqueeze unsqueeze_copy view view_as view_copy vsplit vstack where zero_ zeros
    zeros_like _chunk_cat __getitem__ _unsafe_masked_index
    _unsafe_masked_index_put_accumulate""".split()
)
_NETWORKS = frozenset(
    """bernoulli cauchy exponential geometric log_normal log_softmax
    max_pool2d_with_indices_backward multinomial native_batch_norm native_dropout_backward
    native_group_norm native_layer_norm
    normal rand_like randint randint_like randn randn_like softmax uniform _batch_norm_with_update
    _native_batch_norm_legit _segment_reduce _softmax_backward_data _upsample_bilinear2d_aa
    grid_sampler_2d grid_sampler_3d torch.ops.aten._safe_softmax.default
    torch.ops.aten._flash_attention_forward
    torch.ops.aten._efficient_attention_forward""".split()
)
_SPECIAL = frozenset(
    "hash_tensor histogramdd to_sparse torch._scaled_mm torch._scaled_mm_v2".split()
)


class Sample(NamedTuple):
    """An operator applied to arguments.

    Attributes:
      module: applies it to the tensors, in the order of `tensors`.
      tensors: all that the database's arguments hold.
      is_undefined: whether the numbers are whatever was in the memory.
    """

    module: torch.nn.Module
    tensors: tuple[torch.Tensor, ...]
    is_undefined: bool


def operators() -> dict[str, Any]:
    """The entries of the database by their names, with those of variants after a dot."""
    return {f"{entry.name}.{entry.variant_test_name}".strip("."): entry for entry in database.op_db}


def subject_of(entry: Any) -> str:
    """Which part of the table an operator belongs to."""
    name = entry.name
    if name in _SPECIAL or name.startswith(("jiterator", "sparse.")):
        return "special"
    if name in _NETWORKS or name.startswith("nn.functional."):
        return "networks"
    return "shapes" if name in _SHAPES else "mathematics"


def samples(entry: Any, dtype: str, limit: int | None) -> Iterator[Sample]:
    """The first samples of an operator in a dtype; none if it has none."""
    if DTYPES[dtype] not in entry.dtypes:
        return
    differentiates = entry.supports_autograd and entry.supports_dtype(DTYPES[dtype], "cpu")
    differentiates = differentiates and entry.name not in NO_DERIVATIVE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = entry.sample_inputs(
            "cpu",
            DTYPES[dtype],
            requires_grad=differentiates and DTYPES[dtype].is_floating_point,
            set_seed=True,
        )
        operation = _operation(entry, DTYPES[dtype])
        yield from (_sample(entry, operation, one) for one in itertools.islice(found, limit))


def _operation(entry: Any, dtype: torch.dtype) -> Any:
    """What applies the operator; with values in the place of indices that PyTorch leaves open."""
    if entry.name not in ANY_OF_EQUALS or dtype.is_floating_point:
        return entry.op

    def values_alone(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = entry.op(x, *args, **kwargs)
        if kwargs.get("stable"):
            return result
        if not isinstance(result, torch.Tensor):
            return result.values
        return x.gather(args[0] if args else kwargs.get("dim", -1), result)

    return values_alone


def _sample(entry: Any, operation: Any, found: Any) -> Sample:
    leaves, tree = pytree.tree_flatten((found.input, found.args, found.kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = tuple(leaves[i].detach() for i in positions)
    tensors = tuple(
        t.requires_grad_(leaves[i].requires_grad) for i, t in zip(positions, tensors, strict=True)
    )
    module = _Applied(operation, found, leaves, tree, positions)
    return Sample(module, tensors, "empty" in entry.name)


class _Applied(torch.nn.Module):
    """An operator and what it is applied to, but for the tensors."""

    def __init__(
        self, op: Any, found: Any, leaves: list[Any], tree: Any, positions: list[int]
    ) -> None:
        super().__init__()
        self.op, self.process = op, found.output_process_fn_grad
        self.constants = [None if isinstance(v, torch.Tensor) else v for v in leaves]
        self.tree, self.positions = tree, positions

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.constants)
        for position, tensor in zip(self.positions, tensors, strict=True):
            leaves[position] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return self.process(self.op(first, *args, **kwargs))
