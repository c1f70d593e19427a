"""What is planned: a grouped convolution; a matrix product is one with a kernel of one element."""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Literal, TypeAlias

from lowering.machine.planner.constants import bytes_of
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
      in_channels: summed over, per group.
      out_channels: per group.
      input_field: extents of the input, without padding.
      stride: input elements between the windows of neighbouring outputs.
      dilation: input elements between neighbouring elements of the kernel.
      dtype: of both operands.
      partials: what sums are kept in.
      result: what the output is kept in.
      kind: what it came from; sets which operands must be rearranged before.
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
        """Multiply-accumulates, those of padding included."""
        positions = math.prod(self.field) * math.prod(self.kernel)
        return self.groups * self.batch * positions * self.in_channels * self.out_channels

    @property
    def element_bytes(self) -> int:
        """Bytes of an operand's element."""
        return bytes_of(self.dtype)

    @property
    def inputs(self) -> int:
        """Elements of the input."""
        return self.groups * self.batch * math.prod(self.input_field) * self.in_channels

    @property
    def weights(self) -> int:
        """Elements of the kernels."""
        return self.groups * math.prod(self.kernel) * self.in_channels * self.out_channels

    @property
    def outputs(self) -> int:
        """Elements of the output."""
        return self.groups * self.batch * math.prod(self.field) * self.out_channels


def matmul(
    groups: int, m: int, k: int, n: int, dtype: Number = "float32", partials: Number | None = None
) -> Product:
    """The product of matrices [m, k] and [k, n], `groups` times.

    Rows of the left operand are the field, what is summed over the input channels, and columns of
    the right operand the output channels: the right operand is what a layer keeps as its weights
    (docs/hardware.md, Products).

    Args:
      groups: products side by side.
      m: rows of the left operand.
      k: what is summed over.
      n: columns of the right operand.
      dtype: of the operands and the result.
      partials: what sums are kept in; float32 by default (poplibs: partialsType).
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
