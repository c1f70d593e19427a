"""JAX's two products, `dot_general` and `conv_general_dilated`, as planner products."""

from __future__ import annotations

import collections
import dataclasses as dc
import math
from collections.abc import Sequence
from typing import Any

from lowering.machine.cost import Operation
from lowering.machine.planner.product import Product, matmul_product
from lowering.machine.target import Number

_HALF = ("float16", "bfloat16", "half", "float8_e4m3fn", "float8_e5m2")
_FLOATING = (*_HALF, "float32", "complex64")


def product_of_operation(op: Operation) -> Product:
    """Returns the product that an operation computes; some of its extents may be 0.

    Args:
      op: a `dot_general` or a `conv_general_dilated`, with JAX's parameters. Element types that the
        convolution units do not have are computed by scalar vertices, as if they were float32.
        Complex numbers are pairs of real ones: four real products, as the one of [x, iy] and
        [[u, iv], [-v, iu]], with twice the channels.
    """
    product, element = product_without_number_types(op), op.operands[0].dtype
    dtype, parts = _planner_dtype(element), 2 if element.startswith("complex") else 1
    partials = "float32" if dtype == "float32" else _planner_dtype(op.partials or "float32")
    result = "float16" if partials == "float16" else _planner_dtype(op.first_result.dtype)
    return dc.replace(
        product,
        in_channels=product.in_channels * parts,
        out_channels=product.out_channels * parts,
        dtype=dtype,
        partials=partials,
        result=result,
        scalar=element not in _FLOATING,
    )


def product_without_number_types(op: Operation) -> Product:
    """Returns the product of an operation without its number types."""
    return _product_of_dot(op) if op.name == "dot_general" else _product_of_convolution(op)


def count_product_flops(op: Operation, product: Product) -> float:
    """Counts 2 floating-point operations for each multiply-accumulate; 0 for whole numbers.

    Those of padding count. Those with the zeros of a dilated input do not, although a plan computes
    some of them: a kernel's phases may be of different lengths.
    """
    if not op.operands[0].dtype.startswith(("float", "bfloat", "complex")):
        return 0.0
    flops = 2.0 * product.macs
    if op.name == "conv_general_dilated":
        flops *= _share_of_taps_on_inputs(op)
    return flops


def _share_of_taps_on_inputs(op: Operation) -> float:
    """Returns the share of a plan's multiply-accumulates that meet no zero of a dilated input."""
    numbers: tuple[tuple[int, ...], ...] = op.param("dimension_numbers")
    rank, share = len(numbers[2]) - 2, 1.0
    dims = zip(
        _expand_per_dimension(op.param("lhs_dilation"), rank),
        _expand_per_dimension(op.param("rhs_dilation"), rank),
        _expand_per_dimension(op.param("window_strides"), rank),
        op.param("padding", ((0, 0),) * rank),
        [op.operands[1].dims[axis] for axis in numbers[1][2:]],
        [op.first_result.dims[axis] for axis in numbers[2][2:]],
        strict=True,
    )
    for dilation, kernel_dilation, stride, (before, _), kernel, field in dims:
        if dilation == 1:
            continue
        positions = collections.Counter((i * stride - before) % dilation for i in range(field))
        taps = collections.Counter(-i * kernel_dilation % dilation for i in range(kernel))
        meeting = sum(positions[rest] * number for rest, number in taps.items())
        planned = -(-field // dilation) * -(-kernel // dilation) * min(dilation, kernel)
        share *= meeting / planned
    return share


def _planner_dtype(dtype: str) -> Number:
    return "float16" if dtype in _HALF else "float32"


def _extent_of_axes(dims: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(dims[axis] for axis in axes)


def _product_of_dot(op: Operation) -> Product:
    left_dims, right_dims = (shape.dims for shape in op.operands[:2])
    (left_sum, right_sum), (left_batch, right_batch) = op.param("dimension_numbers")
    rows = [axis for axis in range(len(left_dims)) if axis not in (*left_sum, *left_batch)]
    columns = [axis for axis in range(len(right_dims)) if axis not in (*right_sum, *right_batch)]
    return matmul_product(
        _extent_of_axes(left_dims, left_batch),
        _extent_of_axes(left_dims, rows),
        _extent_of_axes(left_dims, left_sum),
        _extent_of_axes(right_dims, columns),
    )


def _product_of_convolution(op: Operation) -> Product:
    """Returns a convolution as it is, or as the original computes its gradients.

    One of a dilated input computes zeros but for every dilation-th element. The original splits it
    into convolutions of the input as it is, one per phase of the output, each with its part of the
    kernel (poplibs: ConvPlan.cpp, splitting of strided gradients): the phases are output channels
    here. One whose kernel is larger than its output is a gradient of weights.
    """
    numbers: tuple[tuple[int, ...], ...] = op.param("dimension_numbers")
    left_spec, right_spec, out_spec = numbers
    input_dims, kernel_dims, output_dims = (
        op.operands[0].dims,
        op.operands[1].dims,
        op.first_result.dims,
    )
    feature_groups = op.param("feature_group_count", 1)
    batch_groups = op.param("batch_group_count", 1)
    groups = max(1, feature_groups * batch_groups)
    rank = len(out_spec) - 2
    kernel = [kernel_dims[axis] for axis in right_spec[2:]]
    field = [output_dims[axis] for axis in out_spec[2:]]
    input_dilation = _expand_per_dimension(op.param("lhs_dilation"), rank)
    phases = [min(d, k) if k else 1 for d, k in zip(input_dilation, kernel, strict=True)]
    kind = "weight_update" if math.prod(kernel) > math.prod(field) else "convolution"
    return Product(
        groups=groups,
        batch=input_dims[left_spec[0]] // batch_groups,
        field=_at_least_one_dimension(
            -(-f // d) for f, d in zip(field, input_dilation, strict=True)
        ),
        kernel=_at_least_one_dimension(
            -(-k // d) for k, d in zip(kernel, input_dilation, strict=True)
        ),
        in_channels=kernel_dims[right_spec[1]],
        out_channels=kernel_dims[right_spec[0]] // groups * math.prod(phases),
        input_field=_at_least_one_dimension(input_dims[axis] for axis in left_spec[2:]),
        stride=_at_least_one_dimension(_expand_per_dimension(op.param("window_strides"), rank)),
        dilation=_at_least_one_dimension(_expand_per_dimension(op.param("rhs_dilation"), rank)),
        kind=kind,
    )


def _expand_per_dimension(values: Any, rank: int) -> tuple[int, ...]:
    return tuple(values) if values is not None else (1,) * rank


def _at_least_one_dimension(values: Any) -> tuple[int, ...]:
    """Returns the extents, or one extent of 1 where there is none."""
    return tuple(values) or (1,)
