"""PopTorch's own operations on tensors.

Outside of a trace they compute what they mean with PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import torch

from ipujax import math_ops, pipelining_ops
from ipujax.doors.graphs import Graph, names_in
from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.arrays import dtype_of
from ipujax.operators.nn.ctc_decoder import ctc_beam_search_decoder_with_log_probs
from ipujax.poptorch.checks import check
from ipujax.poptorch.enums import MatMulSerializationMode, OverlapMode
from ipujax.poptorch.log import logger
from ipujax.poptorch.loss import identity_loss as identity_loss
from ipujax.poptorch.operators import (
    isRunningOnIpu,
    operator_name,
    traced,
    traced_operator,
)
from ipujax.poptorch.structures import flatten, rebuild

_Structure = TypeVar("_Structure")


@check.guard
def nop(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, through an operation that nothing takes away.

    Raises:
      Error: no tensor.
    """
    _check_tensor(tensor, "nop")
    return traced("nop", tensor) if isRunningOnIpu() else tensor


@traced_operator("nop(Tensor x) -> Tensor", torch.empty_like)
def _nop(x: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(x)


@check.guard
def recomputationCheckpoint(*tensors: Any) -> Any:
    """Has values be kept that recomputation in a pipeline would compute again.

    Args:
      tensors: one or several; or a list or tuple of them.

    Returns:
      The same.

    Raises:
      Error: something else than tensors.
    """
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        return type(tensors[0])([_checkpoint(tensor) for tensor in tensors[0]])
    kept = tuple(_checkpoint(tensor) for tensor in tensors)
    return kept[0] if len(kept) == 1 else kept


def _checkpoint(tensor: Any) -> torch.Tensor:
    _check_tensor(tensor, "recomputationCheckpoint")
    return traced("checkpoint", tensor) if isRunningOnIpu() else tensor


traced_operator("checkpoint(Tensor x) -> Tensor", torch.empty_like)(
    pipelining_ops.recomputation_checkpoint
)


@check.guard
def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """The tensor itself; the machine model plans its operation with all of a tile's memory.

    Args:
      tensor: the result of a convolution, a product of matrices or the like.
      available_memory_proportion: from 0 to 1.

    Raises:
      Error: no tensor, or no such proportion.
    """
    _check_tensor(tensor, "set_available_memory")
    share = check.number(
        available_memory_proportion, "available_memory_proportion", "give a number from 0 to 1"
    )
    if not 0 <= share <= 1:
        raise check.refuse(f"available_memory_proportion is {share}", "give a number from 0 to 1")
    return tensor


@check.guard
def set_overlap_for_input(input_tensors: _Structure, mode: OverlapMode) -> _Structure:
    """The tensors themselves; the program's schedule decides what overlaps with their transfer.

    Args:
      input_tensors: tensors in any structure, inputs of the model.
      mode: anything but `NoOverlap` is logged: it does not act.

    Raises:
      Error: something else than tensors, or no mode; when compiled, tensors that are no inputs.
    """
    return _overlapping(input_tensors, mode, "set_overlap_for_input")


@check.guard
def set_overlap_for_output(output_tensors: _Structure, mode: OverlapMode) -> _Structure:
    """As `set_overlap_for_input`, for tensors that the model gives."""
    return _overlapping(output_tensors, mode, "set_overlap_for_output")


def _overlapping(tensors: _Structure, mode: OverlapMode, of: str) -> _Structure:
    check.instance(mode, OverlapMode, f"the mode of {of}", "a poptorch.OverlapMode")
    leaves = flatten(tensors)
    if not leaves:
        raise check.refuse_type(f"{of} got {tensors!r}, which has no tensors")
    if mode is OverlapMode.NoOverlap or not isRunningOnIpu():
        return rebuild(tensors, leaves)
    logger.warning("%s: OverlapMode.%s does not act", of, mode.name)
    return rebuild(tensors, [traced(of, leaf) for leaf in leaves])


for _name in ("set_overlap_for_input", "set_overlap_for_output"):
    traced_operator(f"{_name}(Tensor x) -> Tensor", torch.empty_like)(lambda x: x)


def check_overlaps(graph: Graph) -> None:
    """Refuses overlap of what is neither an input nor an output.

    Raises:
      PopTorchError: (a `ValueError`) there is such a tensor.
    """
    outputs = names_in(graph.outputs)
    places = {
        operator_name("set_overlap_for_input"): ("input", lambda n: n.reads <= set(graph.inputs)),
        operator_name("set_overlap_for_output"): ("output", lambda n: n.results[0] in outputs),
    }
    for node in graph.nodes:
        end, is_there = places.get(node.operator, ("", bool))
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
    """A product of matrices in parts, one after the other, which take less memory.

    Args:
      lhs: `[..., m, k]`.
      rhs: `[..., k, n]`.
      mode: what is split: `InputChannels` m, `ReducingDim` k, `OutputChannels` n, or nothing.
      factor: how many parts; must divide it.
      keep_precision: sums of halves are always made in float32.

    Raises:
      Error: arguments of wrong types.
      OperatorError: a factor that does not divide the dimension.
    """
    _check_tensor(lhs, "serializedMatMul")
    _check_tensor(rhs, "serializedMatMul")
    wanted = "a poptorch.MatMulSerializationMode"
    check.instance(mode, MatMulSerializationMode, "the mode of serializedMatMul", wanted)
    check.integer(factor, "the factor of serializedMatMul", at_least=0)
    check.flag(keep_precision, "keep_precision")
    if mode is MatMulSerializationMode.Disabled or not isRunningOnIpu():
        return torch.matmul(lhs, rhs)
    return traced("serialized_matmul", lhs, rhs, mode.value, factor)


_SPLIT = {
    "input_channels": "a_columns",
    "reducing_dim": "a_rows_b_columns",
    "output_channels": "b_rows",
}


@traced_operator(
    "serialized_matmul(Tensor a, Tensor b, str mode, int factor) -> Tensor",
    lambda a, b, mode, factor: torch.matmul(a, b),
)
def _serialized_matmul(a: jax.Array, b: jax.Array, mode: str, factor: int) -> jax.Array:
    return math_ops.serialized_matmul(a, b, factor, _SPLIT[mode])


@check.guard
def dynamic_slice(
    tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int
) -> torch.Tensor:
    """Every `step`-th of the `size` elements of a dimension that begin at a computed one.

    Raises:
      Error: arguments of wrong types; a slice without elements; on IPUs also a size that does not
        divide the dimension.
    """
    _check_tensor(tensor, "dynamic_slice")
    _check_tensor(start, "dynamic_slice")
    for value, name in ((dim, "Dimension"), (size, "Size"), (step, "Step")):
        _check_whole(value, name)
    _check_size(size)
    _check_part(tensor, dim, size)
    check.integer(step, "the step of dynamic_slice", at_least=1)
    if isRunningOnIpu():
        _check_factor(size, tensor.shape[dim])
        return traced("dynamic_slice", tensor, dim, start, size, step)
    first = int(start)
    return tensor.narrow(dim, first, size).index_select(dim, torch.arange(0, size, step))


def _check_size(size: int) -> None:
    if size == 0:
        raise check.refuse("The start and end of a slice must be different.")
    if size < 0:
        raise check.refuse(
            "Taking a slice of a tensor with the end less than the start is not supported."
        )


def _check_factor(size: int, length: int) -> None:
    if length % size:
        raise check.refuse(
            f"The size of the slice ({size}) must be a factor of the slicing dimension ({length}).",
            "slice with a size that divides the dimension, or gather with torch.index_select",
        )


@traced_operator(
    "dynamic_slice(Tensor x, int dim, Tensor start, int size, int step) -> Tensor",
    lambda x, dim, start, size, step: x.new_empty(_resized(x.shape, dim, -(-size // step))),
)
def _dynamic_slice(x: jax.Array, dim: int, start: jax.Array, size: int, step: int) -> jax.Array:
    dim %= x.ndim
    part = jax.lax.dynamic_slice_in_dim(x, start.reshape(()), size, dim)
    return jax.lax.slice_in_dim(part, 0, size, step, dim)


def _check_part(tensor: torch.Tensor, dim: int, size: int) -> None:
    """Refuses a part that a tensor does not have."""
    if not -tensor.ndim <= dim < tensor.ndim:
        raise check.refuse(f"a tensor of {tensor.ndim} dimensions has no dimension {dim}")
    if not 0 < size <= tensor.shape[dim]:
        raise check.refuse(
            f"size is {size}, and dimension {dim} has {tensor.shape[dim]} elements",
            "take at least one, and no more than there are",
        )


def _resized(shape: Sequence[int], dim: int, size: int) -> list[int]:
    sizes = list(shape)
    sizes[dim] = size
    return sizes


@check.guard
def dynamic_update(
    input: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int
) -> torch.Tensor:
    """A tensor with another one in the place of `size` elements that begin at a computed one.

    Raises:
      Error: arguments of wrong types, tensors that do not fit, also in their dtypes on an IPU, or
        a slice without elements.
    """
    for tensor in (input, src, start):
        _check_tensor(tensor, "dynamic_update")
    _check_whole(dim, "Dimension")
    _check_whole(size, "Size")
    _check_size(size)
    _check_part(input, dim, size)
    if input.dim() != src.dim():
        raise check.refuse(
            f"input and src tensors must have same dimensionality. ({input.dim()}) vs ({src.dim()})"
        )
    own, other = (jnp.dtype(dtype_of(tensor.dtype)).name for tensor in (input, src))
    if own != other:
        raise check.refuse(
            f"input and src tensor must have same dtype. (torch.{own} vs torch.{other})"
        )
    if src.shape[dim] != size:
        raise check.refuse(f"the size is {size}, and src has {src.shape[dim]} elements there")
    if isRunningOnIpu():
        return traced("dynamic_update", input, src, dim, start)
    updated = input.clone()
    updated.narrow(dim, int(start), size).copy_(src)
    return updated


@traced_operator(
    "dynamic_update(Tensor x, Tensor src, int dim, Tensor start) -> Tensor",
    lambda x, src, dim, start: torch.empty_like(x),
)
def _dynamic_update(x: jax.Array, src: jax.Array, dim: int, start: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(x, src, start.reshape(()), dim % x.ndim)


@check.guard
def ctc_beam_search_decoder(
    probs: torch.Tensor,
    lengths: torch.Tensor,
    blank: int = 0,
    beam_width: int = 100,
    top_paths: int = 1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The most likely label sequences of a connectionist temporal classification; on IPUs only.

    Args:
      probs: logarithms of probabilities, `[input length, batch, classes]`.
      lengths: of the inputs, `[batch]`.
      blank: the class that stands for none.
      beam_width: how many beginnings are followed.
      top_paths: how many results there are.

    Returns:
      Logarithms of probabilities and lengths, `[batch, top_paths]` each, and the paths,
      `[batch, top_paths, input length]`, filled up with the blank class.

    Raises:
      Error: arguments of wrong types; or outside of a wrapped model.
    """
    for value, name in ((probs, "probs"), (lengths, "lengths")):
        check.instance(
            value, torch.Tensor, f"ctc_beam_search_decoder: {name}", "a torch.tensor argument"
        )
    if not isRunningOnIpu():
        raise check.refuse(
            "ctc_beam_search_decoder is called outside of a wrapped model",
            "call it in the forward of a module that poptorch.inferenceModel runs",
        )
    found = traced("ctc_beam_search_decoder", probs, lengths, blank, beam_width, top_paths)
    return tuple(found)


def _decoded_form(probs: Any, lengths: Any, blank: int, width: int, paths: int) -> list[Any]:
    del lengths, blank, width
    time, batch, _ = probs.shape
    one = probs.new_empty((batch, paths))
    of_integers = torch.empty_like(one, dtype=torch.int32)
    return [one, of_integers, of_integers.new_empty((batch, paths, time))]


@traced_operator(
    "ctc_beam_search_decoder(Tensor probs, Tensor lengths, int blank, int width, int paths)"
    " -> Tensor[]",
    _decoded_form,
)
def _ctc_beam_search_decoder(
    probs: jax.Array, lengths: jax.Array, blank: int, width: int, paths: int
) -> list[jax.Array]:
    found = ctc_beam_search_decoder_with_log_probs(probs, lengths, width, paths, blank)
    likely, sizes, labels = found
    return [likely, sizes.astype(jnp.int32), labels.astype(jnp.int32)]


def _check_tensor(value: Any, of: str) -> None:
    check.instance(value, torch.Tensor, f"an argument of {of}", "a torch.Tensor")


def _check_whole(value: Any, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise check.refuse_type(f"{name} must be an integer, not {value!r}")
