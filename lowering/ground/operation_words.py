"""The words that people use for operations: `matmul`, `relu`, `add`; each has one everywhere.

Programs, reports and pictures call an operation by its word; its primitive is a detail. A call is
named by the function that it calls.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping


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
        "relu6": "relu6",
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
        "matmul": "dot_general",
        "conv": "conv_general_dilated",
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


@functools.lru_cache(maxsize=1 << 14)
def word_of_function(name: str) -> str:
    """Returns the word for a well-known function, by its name or scope; "" for others."""
    *_, owner, name_of_method = ("", *name.split("."))
    known_name = owner if name_of_method in ("__call__", "call", "forward") else name_of_method
    name = known_name.lower()
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(re.sub(r"[_\d]", "", name), "")


def word_of_primitive(name: str, exponent: object = None) -> str:
    """Returns the word for a primitive; `exponent` is that of an integer power."""
    plain = re.sub(r"_(start|done)$", "", name)
    if plain == "integer_pow" and exponent == 2:
        return "square"
    if plain in _WORDS:
        return _WORDS[plain]
    return re.sub(r"[_-]+", " ", plain.removeprefix("ipu_")).strip()
