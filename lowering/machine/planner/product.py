"""The product that is planned: a grouped convolution; a matrix product has a kernel of one."""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Literal, TypeAlias

from lowering.machine.planner.planner_constants import bytes_per_number
from lowering.machine.target import Number

Kind: TypeAlias = Literal["matmul", "convolution", "weight_update"]


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A grouped convolution over any number of field dimensions.

    Attributes:
      groups: convolutions side by side, with nothing in common.
      batch: examples.
      field: extents of the output.
      kernel: extents of the kernel; as many as the field has.
      in_channels: input channels per group, which are contracted.
      out_channels: per group.
      input_field: extents of the input, without padding.
      stride: input elements between the windows of neighbouring outputs.
      dilation: input elements between neighbouring elements of the kernel.
      dtype: the type of both operands.
      partials: the type of sums.
      result: the type of the output.
      kind: the operation that it came from; sets which operands must be rearranged before.
      scalar: whether the element type has no vertices of the convolution units (integers).
    """

    groups: int = 1
    batch: int = 1
    field: tuple[int, ...]
    kernel: tuple[int, ...]
    in_channels: int
    out_channels: int
    input_field: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: Number = "float32"
    partials: Number = "float32"
    result: Number = "float32"
    kind: Kind = "convolution"
    scalar: bool = False

    def __post_init__(self) -> None:
        extents = (self.field, self.kernel, self.input_field, self.stride, self.dilation)
        if len(set(map(len, extents))) != 1 or not self.field:
            raise ValueError("A product's field, kernel, stride and dilation must be of one rank.")
        if self.dtype == "float32" and self.partials == "float16":
            raise ValueError("Sums of float32 products cannot be kept in float16.")

    @property
    def macs(self) -> int:
        """The number of multiply-accumulates, those of padding included."""
        positions = math.prod(self.field) * math.prod(self.kernel)
        return self.groups * self.batch * positions * self.in_channels * self.out_channels

    @property
    def element_bytes(self) -> int:
        """The bytes of an operand's element."""
        return bytes_per_number(self.dtype)

    @property
    def input_elements(self) -> int:
        """The number of elements of the input."""
        return self.groups * self.batch * math.prod(self.input_field) * self.in_channels

    @property
    def weight_elements(self) -> int:
        """The number of elements of the kernels."""
        return self.groups * math.prod(self.kernel) * self.in_channels * self.out_channels

    @property
    def output_elements(self) -> int:
        """The number of elements of the output."""
        return self.groups * self.batch * math.prod(self.field) * self.out_channels


def matmul_product(
    groups: int, m: int, k: int, n: int, dtype: Number = "float32", partials: Number | None = None
) -> Product:
    """Builds the product of matrices [m, k] and [k, n], `groups` times.

    Rows of the left operand are the field, the contracted axis the input channels, and columns of
    the right operand the output channels: the right operand is the weights of a layer
    (docs/hardware.md, Products).

    Args:
      groups: products side by side.
      m: rows of the left operand.
      k: the contracted extent.
      n: columns of the right operand.
      dtype: the type of the operands and the result.
      partials: the type of sums; float32 by default (poplibs: partialsType).
    """
    return Product(
        groups=groups,
        field=(m,),
        kernel=(1,),
        in_channels=k,
        out_channels=n,
        input_field=(m,),
        stride=(1,),
        dilation=(1,),
        dtype=dtype,
        partials=partials or "float32",
        result=dtype,
        kind="matmul",
    )
