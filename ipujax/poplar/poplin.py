"""poplin: matrix products, convolutions and factorizations, planned as in ordinary programs."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from collections.abc import Sequence as AbstractSequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check, index_error, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import PlanningCache as PlanningCache
from ipujax.poplar.library_operations import add_planned, read_title
from ipujax.poplar.library_operations import addCodelets as addCodelets
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line

_Numbers = AbstractSequence[int]


def _multiply(rank: int, type: Type) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Returns a function that multiplies matrices, or groups of them, and sums in float."""

    def compute(a: jax.Array, b: jax.Array) -> jax.Array:
        batch = tuple(range(rank - 2))
        dims = (((rank - 1,), (rank - 2,)), (batch, batch))
        return lax.dot_general(a, b, dims, preferred_element_type=_sum_dtype(a.dtype)).astype(
            type.dtype
        )

    return compute


def _sum_dtype(dtype: Any) -> Any:
    return jnp.float32 if jnp.issubdtype(dtype, jnp.floating) else jnp.int32


def _add_product(
    graph: Graph, name: str, a: Tensor, b: Tensor, out: Tensor | None, prog: Sequence,
    trailing_arguments: Any, *, rank: int,
) -> Tensor:  # fmt: skip
    """Adds the product of two operands of a rank, and returns its tensor."""
    for operand in (a, b):
        check.require_instance(operand, Tensor, "A and B")
    if a.type != b.type:
        raise type_error(f"{name} of {a} and {b}: the types differ", where=user_line())
    shapes = a.shape(), b.shape()
    if {a.rank(), b.rank()} != {rank} or shapes[0][-1] != shapes[1][-2]:
        raise index_error(
            f"{name} of {a} and {b}: the shapes do not match",
            where=user_line(),
            fix=f"give A [{'groups, ' * (rank - 2)}m, k] and B [{'groups, ' * (rank - 2)}k, n]",
        )
    default_type = a.type if out is None else out.type
    types = [argument for argument in trailing_arguments if isinstance(argument, Type)]
    function = _multiply(rank, [default_type, *types][-1])
    title = read_title(name, trailing_arguments)
    return add_planned(graph, prog, title, function, [a, b], outs=[out])[0]


@check.guard
def matMul(graph: Graph, A: Tensor, B: Tensor, prog: Sequence, *rest: Any) -> Tensor:
    """Adds the product of A [m, k] and B [k, n] to a program, and returns its tensor [m, n].

    Args:
      graph: the graph.
      A: the left matrix.
      B: the right matrix.
      prog: the sequence.
      *rest: the output's type, a name, and options and a planning cache, which change nothing.
    """
    return _add_product(graph, "matMul", A, B, None, prog, rest, rank=2)


@check.guard
def matMulWithOutput(
    graph: Graph, A: Tensor, B: Tensor, out: Tensor, prog: Sequence, *rest: Any
) -> None:
    """Adds the product of A and B, which is written to a tensor; see `matMul`."""
    _add_product(graph, "matMul", A, B, out, prog, rest, rank=2)


@check.guard
def matMulGrouped(graph: Graph, A: Tensor, B: Tensor, prog: Sequence, *rest: Any) -> Tensor:
    """Adds the products of groups of matrices, [g, m, k] and [g, k, n]; see `matMul`."""
    return _add_product(graph, "matMulGrouped", A, B, None, prog, rest, rank=3)


@check.guard
def matMulGroupedWithOutput(
    graph: Graph, A: Tensor, B: Tensor, out: Tensor, prog: Sequence, *rest: Any
) -> None:
    """Adds the products of groups of matrices, which are written to a tensor."""
    _add_product(graph, "matMulGrouped", A, B, out, prog, rest, rank=3)


@check.guard
def matMulAcc(
    graph: Graph, C: Tensor, k: Any, A: Tensor, B: Tensor, prog: Sequence, *rest: Any
) -> None:
    """Adds `C += k * A * B` to a program; k is a number or a tensor of one element."""
    check.require_instance(C, Tensor, "C")
    multiply = _multiply(2, C.type)

    def compute(c: jax.Array, k: Any, a: jax.Array, b: jax.Array) -> jax.Array:
        return (c + jnp.reshape(k, ()) * multiply(a, b)).astype(c.dtype)

    if C.shape() != [A.dim(0), B.dim(1)]:
        raise index_error(f"matMulAcc of {A} and {B} into {C}", where=user_line())
    title = read_title("matMulAcc", rest)
    add_planned(graph, prog, title, compute, [C, k, A, B], outs=[C])


@check.guard
def createMatMulInputLHS(graph: Graph, inputType: Type, *arguments: Any) -> Tensor:
    """Returns a new left operand of a product, mapped linearly.

    Args:
      graph: the graph.
      inputType: its type.
      *arguments: the output's type, if it is another; the shapes of both operands; a name,
        options and a planning cache.
    """
    return _create_operand(graph, "lhs", inputType, arguments, 0)


@check.guard
def createMatMulInputRHS(graph: Graph, inputType: Type, *arguments: Any) -> Tensor:
    """Returns a new right operand of a product, mapped linearly; see `createMatMulInputLHS`."""
    return _create_operand(graph, "rhs", inputType, arguments, 1)


def _create_operand(
    graph: Graph, name: str, type: Type, arguments: tuple[Any, ...], operand_index: int
) -> Tensor:
    if arguments and isinstance(arguments[0], Type):
        arguments = arguments[1:]
    if len(arguments) < 2:
        raise check.type_error("the shapes of both operands are needed", "give aShape, bShape")
    return _create(graph, type, arguments[operand_index], read_title(name, arguments[2:]))


def _create(graph: Graph, type: Type, shape: _Numbers, name: str) -> Tensor:
    tensor = graph.addVariable(require_type(type, "the type"), shape, name)
    graph.map_linearly(tensor)
    return tensor


@dc.dataclass
class InputTransform:
    """The changes to an input, or a kernel, before a convolution uses it.

    Attributes:
      paddingLower: zeros before, for each dimension of the field; negative ones cut.
      paddingUpper: zeros after.
      dilation: the distance of neighbours.
    """

    paddingLower: list[int]
    paddingUpper: list[int]
    dilation: list[int]


@dc.dataclass
class OutputTransform:
    """The changes to an output: every `stride`-th index of each dimension is kept."""

    stride: list[int]


@check.guard
class ConvParams:
    """The sizes of a convolution.

    Args:
      dataType: of all operands.
      batchSize: images.
      inputFieldShape: the extents of an image.
      kernelShape: the extents of the kernel.
      inputChannelsPerConvGroup: channels of the input.
      outputChannelsPerConvGroup: channels of the output.
      numConvGroups: groups of channels.

    Attributes:
      inputTransform: padding and dilation of the image.
      kernelTransform: dilation of the kernel.
      outputTransform: the stride.
    """

    def __init__(
        self,
        dataType: Type,
        batchSize: int,
        inputFieldShape: _Numbers,
        kernelShape: _Numbers,
        inputChannelsPerConvGroup: int,
        outputChannelsPerConvGroup: int,
        numConvGroups: int,
    ):
        self.dataType = require_type(dataType, "dataType")
        if len(inputFieldShape) != len(kernelShape):
            raise check.value_error(
                "inputFieldShape and kernelShape have different lengths", "give one extent each"
            )
        self.batchSize, self.numConvGroups = batchSize, numConvGroups
        self.inputFieldShape, self.kernelShape = [*inputFieldShape], [*kernelShape]
        self.inputChannelsPerConvGroup = inputChannelsPerConvGroup
        self.outputChannelsPerConvGroup = outputChannelsPerConvGroup
        count = len(self.kernelShape)
        self.inputTransform = InputTransform([0] * count, [0] * count, [1] * count)
        self.kernelTransform = InputTransform([0] * count, [0] * count, [1] * count)
        self.outputTransform = OutputTransform([1] * count)

    def input_shape(self) -> list[int]:
        """Returns the input's shape: [batch, channels, *field]."""
        channels = self.numConvGroups * self.inputChannelsPerConvGroup
        return [self.batchSize, channels, *self.inputFieldShape]

    def weights_shape(self, *, is_transposed: bool = False) -> list[int]:
        """Returns the weights' shape: [groups, output channels, input channels, *kernel]."""
        channels = [self.outputChannelsPerConvGroup, self.inputChannelsPerConvGroup]
        channels = channels[::-1] if is_transposed else channels
        return [self.numConvGroups, *channels, *self.kernelShape]


@check.guard
def createInput(graph: Graph, params: ConvParams, name: str = "input", *rest: Any) -> Tensor:
    """Returns a new input of a convolution, [batch, channels, *field], mapped linearly."""
    read_title("createInput", rest)
    return _create(graph, params.dataType, params.input_shape(), name)


@check.guard
def createWeights(graph: Graph, params: ConvParams, name: str = "weights", *rest: Any) -> Tensor:
    """Returns new weights, [groups, output channels, input channels, *kernel], mapped linearly."""
    read_title("createWeights", rest)
    return _create(graph, params.dataType, params.weights_shape(), name)


@check.guard
def convolution(
    graph: Graph,
    in_: Tensor,
    weights: Tensor,
    params: ConvParams,
    transposeAndFlipWeights: bool,
    prog: Sequence,
    *rest: Any,
) -> Tensor:
    """Adds a convolution to a program, and returns its tensor, [batch, channels, *field].

    Args:
      graph: the graph.
      in_: [batch, channels, *field].
      weights: [groups, output channels, input channels, *kernel].
      params: the sizes.
      transposeAndFlipWeights: whether the weights have their channels exchanged and their kernel
        backwards, as for the gradient of the input.
      prog: the sequence.
      *rest: a name, options and a planning cache, which change nothing.
    """
    is_transposed = check.require_flag(transposeAndFlipWeights, "transposeAndFlipWeights")
    expected_shapes = params.input_shape(), params.weights_shape(is_transposed=is_transposed)
    for tensor, shape in zip((in_, weights), expected_shapes, strict=True):
        if tensor.shape() != shape:
            raise index_error(
                f"a convolution of {tensor}", where=user_line(), fix=f"give it the shape {shape}"
            )
    image, kernel = params.inputTransform, params.kernelTransform
    if any(kernel.paddingLower) or any(kernel.paddingUpper):
        raise NotImplementedError("padding of kernels is not there")

    def compute(x: jax.Array, w: jax.Array) -> jax.Array:
        if is_transposed:
            w = jnp.flip(jnp.swapaxes(w, 1, 2), range(3, w.ndim))
        result = lax.conv_general_dilated(
            x,
            w.reshape(-1, *w.shape[2:]),
            window_strides=params.outputTransform.stride,
            padding=[*zip(image.paddingLower, image.paddingUpper, strict=True)],
            lhs_dilation=image.dilation,
            rhs_dilation=kernel.dilation,
            feature_group_count=params.numConvGroups,
            preferred_element_type=_sum_dtype(x.dtype),
        )
        return result.astype(params.dataType.dtype)

    title = read_title("convolution", rest)
    return add_planned(graph, prog, title, compute, [in_, weights])[0]


@check.guard
def triangularSolve(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    leftSide: bool,
    lower: bool,
    unitDiagonal: bool,
    prog: Sequence,
    *rest: Any,
) -> Tensor:
    """Adds the solution x of `a x = b`, or of `x a = b`, and returns its tensor.

    Args:
      graph: the graph.
      a: [..., n, n], of which one triangle is read.
      b: [..., n, m], or [..., m, n] where `a` is on the right.
      leftSide: whether `a` is on the left.
      lower: whether the lower triangle is read.
      unitDiagonal: whether the diagonal counts as ones.
      prog: the sequence.
      *rest: a name, options and a planning cache, which change nothing.
    """
    is_left, is_lower, has_unit_diagonal = (
        check.require_flag(flag, "a flag") for flag in (leftSide, lower, unitDiagonal)
    )

    def compute(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.linalg.triangular_solve(
            a, b, left_side=is_left, lower=is_lower, unit_diagonal=has_unit_diagonal
        )

    title = read_title("triangularSolve", rest)
    return add_planned(graph, prog, title, compute, [a, b])[0]


@check.guard
def cholesky(graph: Graph, a: Tensor, lower: bool, prog: Sequence, *rest: Any) -> Tensor:
    """Adds the factor of positive definite matrices [..., n, n], and returns its tensor.

    Args:
      graph: the graph.
      a: the matrices.
      lower: whether the factor is a lower triangle, or else an upper one.
      prog: the sequence.
      *rest: a name, options and a planning cache, which change nothing.
    """
    is_lower = check.require_flag(lower, "lower")

    def compute(a: jax.Array) -> jax.Array:
        factor = lax.linalg.cholesky(a)
        return factor if is_lower else jnp.swapaxes(factor, -1, -2)

    return add_planned(graph, prog, read_title("cholesky", rest), compute, [a])[0]
