"""The names that people use for operations: `conv 3x3 16 -> 32`, `matmul 64 x 1024`, `norm`.

Products are named by their extents. Other operations inside a well-known function are named as
that function is, in its backward pass too; all others have a plain word, or a primitive's name in
words.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from lowering.machine.cost import Operation
from lowering.machine.planner.multi_convolution import MULTI_CONV
from lowering.machine.planner.operation import product_without_number_types
from lowering.machine.primitives import ELEMENTWISE

_MOST_WORDS = 3  # of a fused chain


def _word_by_name(words: Mapping[str, str]) -> dict[str, str]:
    """Inverts a table of words, each with the names that it stands for in one text."""
    return {name: word for word, names in words.items() for name in names.split()}


_FUNCTIONS = _word_by_name(
    {
        "norm": "norm bn ln normalize batchnorm groupnorm instancenorm layernorm rmsnorm "
        "batchnormalization groupnormalization instancenormalization layernormalization "
        "rmsnormalization standardize",
        "softmax": "softmax",
        "log softmax": "logsoftmax",
        "log of a sum of exponentials": "logsumexp",
        "cross entropy": "crossentropy sigmoidbinarycrossentropy softmaxcrossentropy "
        "softmaxcrossentropywithintegerlabels",
        "dropout": "dropout",
        "relu": "relu",
        "leaky relu": "leakyrelu",
        "gelu": "gelu",
        "silu": "silu swish",
        "elu": "elu",
        "softplus": "softplus",
        "one-hot": "onehot",
    }
)
"""The labels by the names of functions and scopes, without `_` and digits."""

_WORDS = _word_by_name(
    {
        "add": "add add_any addupdate accum_grad_in_ref",
        "subtract": "sub",
        "multiply": "mul",
        "multiply, high bits": "mulhi",
        "divide": "div",
        "negate": "neg",
        "remainder": "rem",
        "power": "pow integer_pow",
        "square root": "sqrt",
        "inverse square root": "rsqrt",
        "cube root": "cbrt",
        "absolute value": "abs",
        "sigmoid": "logistic",
        "select": "select_n",
        "compare": "eq ne lt le gt ge eq_to lt_to le_to",
        "logic": "and or xor not",
        "shift bits": "shift_left shift_right_arithmetic shift_right_logical",
        "count bits": "population_count clz",
        "clip": "clamp",
        "cast": "convert_element_type reduce_precision bitcast_convert_type to_edtype from_edtype",
        "sum": "reduce_sum",
        "maximum": "reduce_max",
        "minimum": "reduce_min",
        "product": "reduce_prod",
        "all": "reduce_and",
        "any": "reduce_or",
        "parity": "reduce_xor",
        "index of the maximum": "argmax",
        "index of the minimum": "argmin",
        "running sum": "cumsum",
        "running product": "cumprod",
        "running maximum": "cummax",
        "running minimum": "cummin",
        "running log of a sum": "cumlogsumexp",
        "max pool": "reduce_window_max",
        "min pool": "reduce_window_min",
        "sum pool": "reduce_window_sum",
        "pool": "reduce_window",
        "scatter over windows": "select_and_scatter select_and_scatter_add select_and_gather_add",
        "lookup": "gather",
        "scatter": "scatter",
        "scatter and add": "scatter-add",
        "scatter and subtract": "scatter-sub",
        "scatter and multiply": "scatter-mul",
        "scatter and minimum": "scatter-min",
        "scatter and maximum": "scatter-max",
        "slice": "slice dynamic_slice",
        "write a slice": "dynamic_update_slice",
        "join": "concatenate",
        "repeat": "broadcast_in_dim broadcast_to tile",
        "reshape": "reshape squeeze expand_dims",
        "reverse": "rev",
        "numbers in order": "iota iota_2x32_shape",
        "copy": "copy copy_p",
        "random numbers": "random_bits rng_bit_generator rng_uniform threefry2x32 threefry4x32 "
        "philox2x32 philox4x32 random_gamma ipu_random_halves",
        "random key": "random_seed random_wrap random_unwrap random_fold_in random_split "
        "random_clone ipu_draw_key",
        "largest few": "top_k approx_top_k",
        "triangular system": "triangular_solve",
        "tridiagonal system": "tridiagonal_solve",
        "linear system": "custom_linear_solve",
        "Fourier transform": "fft",
        "ragged matmul": "ragged_dot_general",
        "sum over replicas": "ipu_cross_replica_sum psum psum_invariant unreduced_psum",
        "maximum over replicas": "pmax",
        "minimum over replicas": "pmin",
        "gather over replicas": "ipu_all_gather all_gather all_gather_invariant all_gather_reduced",
        "scatter sums over replicas": "ipu_reduce_scatter reduce_scatter unreduced_reduce_scatter",
        "exchange between replicas": "ipu_all_to_all all_to_all ragged_all_to_all ppermute",
        "number of the replica": "ipu_replication_index axis_index",
        "number of replicas": "ipu_replica_count",
        "lookup on the host": "ipu_host_lookup",
        "update on the host": "ipu_host_update",
        "call of the host": "io_callback pure_callback debug_callback debug_print "
        "ipu_first_callback",
    }
)
"""The labels by the names of primitives; those that are words themselves are missing."""

_MOVES = (
    (r"copy OnTileCopy|output", "copy"),
    (r".* slices", "slices of a loop"),
    (r"copy (\d+) -> (\d+)", r"copy IPU \1 -> IPU \2"),
    (r"copy (\d+) -> (\d+)/sync", r"sync of IPU \1 and IPU \2"),
    (r"host copy", "copy from or to the host"),
    (r"stream-in (.*)", r"read queue \1"),
    (r"stream-out (.*)", r"write queue \1"),
    (r"remote load", "load from streaming memory"),
    (r"remote store", "store to streaming memory"),
    (r"all-gather", "gather over replicas"),
    (r"pipeline transfers", "copies between stages"),
)
"""The labels by patterns of the titles of data moves."""


def label_operations(
    operations: Sequence[Operation], functions: Iterable[str] = (), scope: str = ""
) -> str:
    """Returns the name that people use for operations that run as one.

    Args:
      operations: one, or a fused chain of elementwise ones.
      functions: names of the functions that they are computed in, outermost first.
      scope: the named scopes around them, as `blocks/norm1`.
    """
    last = operations[-1]
    if last.name == MULTI_CONV:
        return f"{len(last.param('parts'))} convs side by side"
    if last.name == "dot_general":
        return _label_matmul(last)
    if last.name == "conv_general_dilated":
        return _label_convolution(last)
    if last.name in ELEMENTWISE or last.name.startswith(("reduce_", "arg", "cum")):
        names = (*functions, scope.rpartition("/")[2])
        function_label = next((label for label in map(_label_of_function, names) if label), "")
        return function_label or _label_chain(operations)
    return _word_of_operation(last)


def label_of_move(title: str) -> str:
    """Returns the name that people use for a move of data with this title."""
    for pattern, text in _MOVES:
        match = re.fullmatch(pattern, title)
        if match:
            return match.expand(text)
    return title


@functools.lru_cache(maxsize=1 << 14)
def _label_of_function(name: str) -> str:
    """Returns the label of a function, by its qualified name or scope; "" if it has none."""
    *_, owner, name_of_method = ("", *name.split("."))
    known_name = owner if name_of_method in ("__call__", "call", "forward") else name_of_method
    return _FUNCTIONS.get(re.sub(r"[_\d]", "", known_name).lower(), "")


def _label_matmul(op: Operation) -> str:
    """Returns a label as `matmul rows x inner x columns`; a vector has no rows or columns."""
    product = product_without_number_types(op)
    rows, summed, columns = math.prod(product.field), product.in_channels, product.out_channels
    row_words, column_words = [rows] * (rows != 1), [columns] * (columns != 1)
    text = f"matmul {' x '.join(map(str, (*row_words, summed, *column_words)))}"
    if not row_words and not column_words:
        text = f"dot product {summed}"
    return text if product.groups == 1 else f"{text}, batch of {product.groups}"


def _label_convolution(op: Operation) -> str:
    """Returns a label of kernel and channels; a gradient of weights is named by its weights."""
    product = product_without_number_types(op)
    numbers: tuple[tuple[int, ...], ...] = op.param("dimension_numbers")
    _, spec, out_spec = numbers
    weights, result = op.operands[1].dims, op.first_result.dims
    groups = op.param("feature_group_count", 1)
    if product.kind == "weight_update":
        kernel, sources, results = product.field, result[out_spec[0]], result[out_spec[1]]
        groups, suffix = op.param("batch_group_count", 1), ", gradient of weights"
    else:
        kernel, suffix = tuple(weights[axis] for axis in spec[2:]), ""
        sources, results = weights[spec[1]] * groups, weights[spec[0]]
    words = "conv", "x".join(map(str, kernel)), f"{sources} -> {results}"
    grouped = f", {groups} groups" if groups > 1 else ""
    return " ".join(filter(None, words)) + grouped + suffix


def _label_chain(operations: Sequence[Operation]) -> str:
    """Returns the words of a chain, each once; casts only if there is nothing else."""
    words = list(dict.fromkeys(map(_word_of_operation, operations)))
    words = [word for word in words if word != "cast"] or words
    hidden = len(words) - _MOST_WORDS
    return (
        ", ".join(words) if hidden <= 0 else f"{', '.join(words[:_MOST_WORDS])} and {hidden} more"
    )


def _word_of_operation(op: Operation) -> str:
    """Returns the word for one operation."""
    plain = re.sub(r"_(start|done)$", "", op.name)
    if plain == "integer_pow" and op.param("y") == 2:
        return "square"
    if plain in _WORDS:
        return _WORDS[plain]
    return re.sub(r"[_-]+", " ", plain.removeprefix("ipu_")).strip()
