"""popnn.pooling: the largest, the mean or the sum of windows, and their gradients."""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Sequence as AbstractSequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_planned, read_title, split_at_program
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line


class PoolingType(enum.Enum):
    """The kinds of poolings: the value that each window gives."""

    MAX = 0
    AVG = 1
    SUM = 2


@check.guard
@dc.dataclass(frozen=True)
class PoolParams:
    """The sizes of a pooling.

    Attributes:
      poolingType: what is taken of a window.
      inputFieldShape: the extents of an image.
      kernelShape: the extents of a window.
      stride: the distance of windows.
      inputTruncationOrPaddingLower: what windows find before an image; negative: cut away.
      inputTruncationOrPaddingUpper: the same after it. Means do not count it.
      numChannels: channels.
      batchSize: images.
      dType: the type of elements.
    """

    poolingType: PoolingType
    inputFieldShape: AbstractSequence[int]
    kernelShape: AbstractSequence[int]
    stride: AbstractSequence[int]
    inputTruncationOrPaddingLower: AbstractSequence[int]
    inputTruncationOrPaddingUpper: AbstractSequence[int]
    numChannels: int
    batchSize: int
    dType: Type

    def __post_init__(self) -> None:
        check.require_instance(self.poolingType, PoolingType, "poolingType")
        require_type(self.dType, "dType")
        lengths = {
            len(self.inputFieldShape), len(self.kernelShape), len(self.stride),
            len(self.inputTruncationOrPaddingLower), len(self.inputTruncationOrPaddingUpper),
        }  # fmt: skip
        if len(lengths) != 1:
            raise check.value_error(
                "the shapes, strides and paddings have different lengths", "give one number each"
            )

    def getNumFieldDims(self) -> int:
        """Returns the dimensions of an image."""
        return len(self.inputFieldShape)

    def getOutputFieldShape(self) -> list[int]:
        """Returns how many windows there are in each dimension of an image."""
        extents = zip(
            self.inputFieldShape,
            self.inputTruncationOrPaddingLower,
            self.inputTruncationOrPaddingUpper,
            self.kernelShape,
            self.stride,
            strict=True,
        )
        return [
            max(0, size + lower + upper - kernel) // stride + 1
            for size, lower, upper, kernel, stride in extents
        ]

    @property
    def input_shape(self) -> list[int]:
        """The input's shape: [batch, channels, *field]."""
        return [self.batchSize, self.numChannels, *self.inputFieldShape]


def _pool(params: PoolParams, x: jax.Array) -> jax.Array:
    """Returns the pooling of an array [batch, channels, *field]."""
    ends = zip(
        params.inputTruncationOrPaddingLower, params.inputTruncationOrPaddingUpper, strict=True
    )
    padding = [(0, 0, 0), (0, 0, 0), *((low, high, 0) for low, high in ends)]
    window, strides = (1, 1, *params.kernelShape), (1, 1, *params.stride)

    def add_windows(y: jax.Array) -> jax.Array:
        zero = jnp.zeros((), y.dtype)
        padded = lax.pad(y, zero, padding)
        return lax.reduce_window(padded, 0.0, lax.add, window, strides, "VALID")

    if params.poolingType is PoolingType.MAX:
        lowest = jnp.asarray(-jnp.inf, x.dtype)
        padded = lax.pad(x, lowest, padding)
        return lax.reduce_window(padded, -jnp.inf, lax.max, window, strides, "VALID")
    total = add_windows(x)
    if params.poolingType is PoolingType.SUM:
        return total
    return total / jnp.maximum(add_windows(jnp.ones_like(x)), 1)


@check.guard
def pool(graph: Graph, params: PoolParams, in_: Tensor, prog: Sequence, *rest: Any) -> Tensor:
    """Adds a pooling to a program, and returns its tensor, [batch, channels, *field].

    Args:
      graph: the graph.
      params: the sizes.
      in_: [batch, channels, *field].
      prog: the sequence.
      *rest: a name and options, which change nothing.
    """
    _require_input(params, in_)
    title = read_title("pool", rest)
    return add_planned(graph, prog, title, lambda x: _pool(params, x), [in_])[0]


@check.guard
def poolInputGradient(graph: Graph, params: PoolParams, *arguments: Any) -> Tensor:
    """Adds the gradient of a pooling's input to a program, and returns its tensor.

    Of equal elements of a window, the first gets the gradient.

    Args:
      graph: the graph.
      params: the sizes.
      *arguments: `in, pooled, pooledGradient, useScaledGradient, prog` of MAX, whose gradients are
        not scaled; `channelsPerGroup, pooledGradient, prog` of AVG and SUM, whose first changes
        nothing; and a name and options.
    """
    is_max = params.poolingType is PoolingType.MAX
    operands, prog, trailing_arguments = split_at_program(
        "poolInputGradient", arguments, (4,) if is_max else (2,)
    )
    title = read_title("poolGradient", trailing_arguments)
    if is_max:
        in_, _, gradient, is_scaled = operands
        _require_input(params, in_)
        if check.require_flag(is_scaled, "useScaledGradient"):
            raise NotImplementedError("scaled gradients of max pooling are not there")
        return add_planned(
            graph, prog, title, lambda x, g: _pull_back(params, x, g), [in_, gradient]
        )[0]
    shape, dtype = tuple(params.input_shape), params.dType.dtype
    return add_planned(
        graph, prog, title,
        lambda g: _pull_back(params, jnp.zeros(shape, dtype), g), [operands[1]],
    )[0]  # fmt: skip


def _pull_back(params: PoolParams, x: jax.Array, g: jax.Array) -> jax.Array:
    return jax.vjp(lambda y: _pool(params, y), x)[1](g)[0]


def _require_input(params: PoolParams, in_: Any) -> None:
    check.require_instance(params, PoolParams, "params")
    if check.require_instance(in_, Tensor, "in").shape() != params.input_shape:
        raise index_error(
            f"a pooling of {in_}", where=user_line(), fix=f"give it shape {params.input_shape}"
        )
