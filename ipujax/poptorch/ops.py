"""The operations on tensors that PopTorch adds to PyTorch.

Outside of a trace they compute their results with PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import torch

from ipujax.doors.graphs import Graph, names_of_refs
from ipujax.doors.torch import jax_dtype_of
from ipujax.ground import PopTorchError, PyTree
from ipujax.operators import ctc_beam_search_decoder_with_log_probs
from ipujax.operators import math as math_ops
from ipujax.pipelines import pipelining as pipelining_ops
from ipujax.poptorch.enums import MatMulSerializationMode, OverlapMode
from ipujax.poptorch.loss import identity_loss as identity_loss
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger
from ipujax.poptorch.poptorch_operators import (
    define_traced_operator,
    isRunningOnIpu,
    qualify_operator_name,
    trace_operator,
)
from ipujax.poptorch.poptorch_structures import flatten_tensors, rebuild_structure

_Structure = TypeVar("_Structure")


@check.guard
def nop(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor through an operation that no optimization removes.

    Raises:
      Error: the argument is no tensor.
    """
    _check_tensor_argument(tensor, "nop")
    return trace_operator("nop", tensor) if isRunningOnIpu() else tensor


@define_traced_operator("nop(Tensor x) -> Tensor", torch.empty_like)
def _run_nop(x: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(x)


@check.guard
def recomputationCheckpoint(*tensors: object) -> PyTree:
    """Keeps values that recomputation in a pipeline would otherwise compute again.

    Args:
      tensors: one or several; or a list or tuple of them.

    Returns:
      The same.

    Raises:
      Error: something else than tensors.
    """
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        return type(tensors[0])([_checkpoint_tensor(tensor) for tensor in tensors[0]])
    checkpoints = tuple(_checkpoint_tensor(tensor) for tensor in tensors)
    return checkpoints[0] if len(checkpoints) == 1 else checkpoints


def _checkpoint_tensor(tensor: Any) -> torch.Tensor:
    _check_tensor_argument(tensor, "recomputationCheckpoint")
    return trace_operator("checkpoint", tensor) if isRunningOnIpu() else tensor


define_traced_operator("checkpoint(Tensor x) -> Tensor", torch.empty_like)(
    pipelining_ops.recomputation_checkpoint
)


@check.guard
def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """Returns the tensor; the machine model plans its operation with all of a tile's memory.

    Args:
      tensor: the result of a convolution, a product of matrices or the like.
      available_memory_proportion: the proportion, from 0 to 1; changes nothing.

    Raises:
      Error: no tensor, or no such proportion.
    """
    _check_tensor_argument(tensor, "set_available_memory")
    proportion = check.require_number(
        available_memory_proportion, "available_memory_proportion", "give a number from 0 to 1"
    )
    if not 0 <= proportion <= 1:
        raise check.value_error(
            f"available_memory_proportion is {proportion}", "give a number from 0 to 1"
        )
    return tensor


@check.guard
def set_overlap_for_input(input_tensors: _Structure, mode: OverlapMode) -> _Structure:
    """Returns the tensors; the program's schedule decides what overlaps with their transfer.

    Args:
      input_tensors: tensors in any structure, inputs of the model.
      mode: anything but `NoOverlap` is logged: it does not act.

    Raises:
      Error: something else than tensors, or no mode; when compiled, tensors that are no inputs.
    """
    return _mark_overlap(input_tensors, mode, "set_overlap_for_input")


@check.guard
def set_overlap_for_output(output_tensors: _Structure, mode: OverlapMode) -> _Structure:
    """Returns the model's output tensors, as `set_overlap_for_input` does inputs."""
    return _mark_overlap(output_tensors, mode, "set_overlap_for_output")


def _mark_overlap(tensors: _Structure, mode: OverlapMode, function_name: str) -> _Structure:
    check.require_instance(
        mode, OverlapMode, f"the mode of {function_name}", "a poptorch.OverlapMode"
    )
    leaves = flatten_tensors(tensors)
    if not leaves:
        raise check.type_error(f"{function_name} got {tensors!r}, which has no tensors")
    if mode is OverlapMode.NoOverlap or not isRunningOnIpu():
        return rebuild_structure(tensors, leaves)
    logger.warning("%s: OverlapMode.%s has no effect", function_name, mode.name)
    return rebuild_structure(tensors, [trace_operator(function_name, leaf) for leaf in leaves])


for _name in ("set_overlap_for_input", "set_overlap_for_output"):
    define_traced_operator(f"{_name}(Tensor x) -> Tensor", torch.empty_like)(lambda x: x)


def check_overlaps(graph: Graph) -> None:
    """Checks that overlap was set only for inputs and outputs of the model.

    Raises:
      PopTorchError: (a `ValueError`) it was set for another tensor.
    """
    outputs = names_of_refs(graph.outputs)
    end_checks = {
        qualify_operator_name("set_overlap_for_input"): (
            "input",
            lambda n: n.reads <= set(graph.inputs),
        ),
        qualify_operator_name("set_overlap_for_output"): (
            "output",
            lambda n: n.results[0] in outputs,
        ),
    }
    for node in graph.nodes:
        end, is_there = end_checks.get(node.operator, ("", bool))
        if not is_there(node):
            raise PopTorchError(
                f"poptorch.set_overlap_for_{end} applied on a node which is not a tensor {end} to "
                "the model.",
                where=node.where,
                fix=f"give it {end}s of the model, and nothing else",
            )


@check.guard
def serializedMatMul(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    mode: MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """Multiplies matrices in parts, one after the other, which takes less memory.

    Args:
      lhs: `[..., m, k]`.
      rhs: `[..., k, n]`.
      mode: the dimension to split: `InputChannels` m, `ReducingDim` k, `OutputChannels` n, or none.
      factor: the number of parts; must divide the dimension.
      keep_precision: sums of halves are always made in float32.

    Raises:
      Error: arguments of wrong types.
      OperatorError: a factor that does not divide the dimension.
    """
    _check_tensor_argument(lhs, "serializedMatMul")
    _check_tensor_argument(rhs, "serializedMatMul")
    expected = "a poptorch.MatMulSerializationMode"
    check.require_instance(mode, MatMulSerializationMode, "the mode of serializedMatMul", expected)
    check.require_integer(factor, "the factor of serializedMatMul", at_least=0)
    check.require_flag(keep_precision, "keep_precision")
    if mode is MatMulSerializationMode.Disabled or not isRunningOnIpu():
        return torch.matmul(lhs, rhs)
    return trace_operator("serialized_matmul", lhs, rhs, mode.value, factor)


_SPLIT = {
    "input_channels": "a_columns",
    "reducing_dim": "a_rows_b_columns",
    "output_channels": "b_rows",
}


@define_traced_operator(
    "serialized_matmul(Tensor a, Tensor b, str mode, int factor) -> Tensor",
    lambda a, b, mode, factor: torch.matmul(a, b),
)
def _run_serialized_matmul(a: jax.Array, b: jax.Array, mode: str, factor: int) -> jax.Array:
    return math_ops.serialized_matmul(a, b, factor, _SPLIT[mode])


@check.guard
def dynamic_slice(
    tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int
) -> torch.Tensor:
    """Slices every `step`-th of `size` elements of a dimension, from a computed start.

    Raises:
      Error: arguments of wrong types; a slice without elements; on IPUs also a size that does not
        divide the dimension.
    """
    _check_tensor_argument(tensor, "dynamic_slice")
    _check_tensor_argument(start, "dynamic_slice")
    for value, name in ((dim, "Dimension"), (size, "Size"), (step, "Step")):
        _check_is_integer(value, name)
    _check_slice_size(size)
    _check_slice_fits(tensor, dim, size)
    check.require_integer(step, "the step of dynamic_slice", at_least=1)
    if isRunningOnIpu():
        _check_size_divides(size, tensor.shape[dim])
        return trace_operator("dynamic_slice", tensor, dim, start, size, step)
    first = int(start)
    return tensor.narrow(dim, first, size).index_select(dim, torch.arange(0, size, step))


def _check_slice_size(size: int) -> None:
    if size == 0:
        raise check.value_error("The start and end of a slice must be different.")
    if size < 0:
        raise check.value_error(
            "Taking a slice of a tensor with the end less than the start is not supported."
        )


def _check_size_divides(size: int, length: int) -> None:
    if length % size:
        raise check.value_error(
            f"The size of the slice ({size}) must be a factor of the slicing dimension ({length}).",
            "slice with a size that divides the dimension, or gather with torch.index_select",
        )


@define_traced_operator(
    "dynamic_slice(Tensor x, int dim, Tensor start, int size, int step) -> Tensor",
    lambda x, dim, start, size, step: x.new_empty(_replace_size(x.shape, dim, -(-size // step))),
)
def _run_dynamic_slice(x: jax.Array, dim: int, start: jax.Array, size: int, step: int) -> jax.Array:
    dim %= x.ndim
    part = jax.lax.dynamic_slice_in_dim(x, start.reshape(()), size, dim)
    return jax.lax.slice_in_dim(part, 0, size, step, dim)


def _check_slice_fits(tensor: torch.Tensor, dim: int, size: int) -> None:
    """Checks that a tensor has a dimension with as many elements as a slice."""
    if not -tensor.ndim <= dim < tensor.ndim:
        raise check.value_error(f"a tensor of {tensor.ndim} dimensions has no dimension {dim}")
    if not 0 < size <= tensor.shape[dim]:
        raise check.value_error(
            f"size is {size}, and dimension {dim} has {tensor.shape[dim]} elements",
            "take at least one, and no more than there are",
        )


def _replace_size(shape: Sequence[int], dim: int, size: int) -> list[int]:
    sizes = list(shape)
    sizes[dim] = size
    return sizes


@check.guard
def dynamic_update(
    input: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int
) -> torch.Tensor:
    """Replaces `size` elements of a dimension, from a computed start, by another tensor.

    Raises:
      Error: arguments of wrong types, tensors that do not fit, also in their dtypes on an IPU, or
        a slice without elements.
    """
    for tensor in (input, src, start):
        _check_tensor_argument(tensor, "dynamic_update")
    _check_is_integer(dim, "Dimension")
    _check_is_integer(size, "Size")
    _check_slice_size(size)
    _check_slice_fits(input, dim, size)
    if input.dim() != src.dim():
        raise check.value_error(
            f"input and src tensors must have same dimensionality. ({input.dim()}) vs ({src.dim()})"
        )
    input_dtype, src_dtype = (jnp.dtype(jax_dtype_of(tensor.dtype)).name for tensor in (input, src))
    if input_dtype != src_dtype:
        raise check.value_error(
            f"input and src tensor must have same dtype. (torch.{input_dtype} vs torch.{src_dtype})"
        )
    if src.shape[dim] != size:
        raise check.value_error(f"the size is {size}, and src has {src.shape[dim]} elements there")
    if isRunningOnIpu():
        return trace_operator("dynamic_update", input, src, dim, start)
    updated = input.clone()
    updated.narrow(dim, int(start), size).copy_(src)
    return updated


@define_traced_operator(
    "dynamic_update(Tensor x, Tensor src, int dim, Tensor start) -> Tensor",
    lambda x, src, dim, start: torch.empty_like(x),
)
def _run_dynamic_update(x: jax.Array, src: jax.Array, dim: int, start: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(x, src, start.reshape(()), dim % x.ndim)


@check.guard
def ctc_beam_search_decoder(
    probs: torch.Tensor,
    lengths: torch.Tensor,
    blank: int = 0,
    beam_width: int = 100,
    top_paths: int = 1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Finds the most likely label sequences of a CTC model; on IPUs only.

    Args:
      probs: logarithms of probabilities, `[input length, batch, classes]`.
      lengths: the lengths of the inputs, `[batch]`.
      blank: the class that stands for none.
      beam_width: how many prefixes the search keeps.
      top_paths: how many sequences are returned.

    Returns:
      Logarithms of probabilities and lengths, `[batch, top_paths]` each, and the paths,
      `[batch, top_paths, input length]`, filled up with the blank class.

    Raises:
      Error: arguments of wrong types; or outside of a wrapped model.
    """
    for value, name in ((probs, "probs"), (lengths, "lengths")):
        check.require_instance(
            value, torch.Tensor, f"ctc_beam_search_decoder: {name}", "a torch.tensor argument"
        )
    if not isRunningOnIpu():
        raise check.value_error(
            "ctc_beam_search_decoder is called outside of a wrapped model",
            "call it in the forward of a module that poptorch.inferenceModel runs",
        )
    results = trace_operator(
        "ctc_beam_search_decoder", probs, lengths, blank, beam_width, top_paths
    )
    return tuple(results)


def _empty_decoder_results(
    probs: Any, lengths: object, blank: int, width: int, paths: int
) -> list[torch.Tensor]:
    del lengths, blank, width
    time, batch, _ = probs.shape
    log_probs = probs.new_empty((batch, paths))
    integers = torch.empty_like(log_probs, dtype=torch.int32)
    return [log_probs, integers, integers.new_empty((batch, paths, time))]


@define_traced_operator(
    "ctc_beam_search_decoder(Tensor probs, Tensor lengths, int blank, int width, int paths)"
    " -> Tensor[]",
    _empty_decoder_results,
)
def _run_ctc_beam_search_decoder(
    probs: jax.Array, lengths: jax.Array, blank: int, width: int, paths: int
) -> list[jax.Array]:
    results = ctc_beam_search_decoder_with_log_probs(probs, lengths, width, paths, blank)
    likely, sizes, labels = results
    return [likely, sizes.astype(jnp.int32), labels.astype(jnp.int32)]


def _check_tensor_argument(value: object, function_name: str) -> None:
    check.require_instance(value, torch.Tensor, f"an argument of {function_name}", "a torch.Tensor")


def _check_is_integer(value: object, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise check.type_error(f"{name} must be an integer, not {value!r}")
