"""Candidate cuts of a product over tiles, and the largest tile's part under each of them."""

from __future__ import annotations

import dataclasses as dc
import functools
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lowering.machine.planner.product import Product

Array: TypeAlias = npt.NDArray[Any]


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Grains:
    """The grains of a product, which are never cut: a vertex handles whole grains.

    Attributes:
      groups: groups that a vertex works on side by side.
      in_channels: input channels in one.
      out_channels: output channels in one.
    """

    groups: int = 1
    in_channels: int = 1
    out_channels: int = 1

    def count_grains(self, product: Product) -> tuple[int, int, int]:
        """Returns how many grains of groups, input and output channels a product has."""
        groups = ceil_div(product.groups, self.groups)
        ins = ceil_div(product.in_channels, self.in_channels)
        return groups, ins, ceil_div(product.out_channels, self.out_channels)


@dc.dataclass(frozen=True, slots=True)
class Cuts:
    """Candidate partitions, one per element of the arrays (int64 [candidates]).

    Attributes:
      groups: parts of the groups.
      batch: parts of the batch.
      field: parts of every field dimension.
      kernel: parts of every kernel dimension.
      in_channels: parts of the input channels that are worked on at the same time.
      out_channels: parts of the output channels that are worked on at the same time.
      serial_in: parts of the input channels that are worked on one after the other.
      serial_out: parts of the output channels that are worked on one after the other.
      early: whether the inputs are sent once before the loop over serial parts (0 or 1).
    """

    groups: Array
    batch: Array
    field: tuple[Array, ...]
    kernel: tuple[Array, ...]
    in_channels: Array
    out_channels: Array
    serial_in: Array
    serial_out: Array
    early: Array

    @property
    def tiles_used(self) -> Array:
        """The number of tiles that take part."""
        channels = self.in_channels * self.out_channels
        return self.groups * self.tiles_sharing_weights * multiply_arrays(self.kernel) * channels

    @property
    def serial_repeats(self) -> Array:
        """The number of serial parts."""
        return self.serial_in * self.serial_out

    @property
    def depth(self) -> Array:
        """The number of partials of each output element, on different tiles."""
        return self.in_channels * multiply_arrays(self.kernel)

    @property
    def tiles_sharing_weights(self) -> Array:
        """The number of tiles that use the same weights; each holds a part of them."""
        return self.batch * multiply_arrays(self.field)


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class LargestPart:
    """The largest tile's part of one serial part, for every candidate.

    Attributes:
      group_grains: grains of groups.
      batch: examples.
      field: extents of its outputs.
      kernel: extents of its part of the kernel.
      in_grains: grains of input channels.
      out_grains: grains of output channels.
      read: extents of the input that it reads.
      inputs: elements that it reads.
      weights: elements of its kernels.
      partials: sums that it makes.
    """

    group_grains: Array
    batch: Array
    field: tuple[Array, ...]
    kernel: tuple[Array, ...]
    in_grains: Array
    out_grains: Array
    read: tuple[Array, ...]
    inputs: Array
    weights: Array
    partials: Array

    @property
    def output_rows(self) -> Array:
        """The number of output positions, all examples together."""
        return self.batch * multiply_arrays(self.field)

    def rows_of_worker(self, workers: int) -> tuple[Array, Array]:
        """Returns the rows of the busiest worker, and how many pieces of output rows they are."""
        rows = ceil_div(self.output_rows, workers)
        return rows, ceil_div(rows, self.field[-1])

    @property
    def kernel_elements_of_part(self) -> Array:
        """The number of kernel elements in its part."""
        return multiply_arrays(self.kernel)


def ceil_div(a: Any, b: Any) -> Any:
    """Divides numbers or arrays and rounds up."""
    return -(-a // b)


def multiply_arrays(arrays: Sequence[Array]) -> Array:
    """Returns the product of one or more arrays."""
    return functools.reduce(operator.mul, arrays)


def find_largest_part(product: Product, grains: Grains, cuts: Cuts) -> LargestPart:
    """Returns the part of the largest tile (poplibs: ConvModel.cpp, constructModel: rounded up)."""
    all_groups, ins, outs = grains.count_grains(product)
    groups = ceil_div(all_groups, cuts.groups)
    batch = ceil_div(product.batch, cuts.batch)
    field = tuple(ceil_div(n, cut) for n, cut in zip(product.field, cuts.field, strict=True))
    kernel = tuple(ceil_div(n, cut) for n, cut in zip(product.kernel, cuts.kernel, strict=True))
    in_grains = ceil_div(ins, cuts.in_channels * cuts.serial_in)
    out_grains = ceil_div(outs, cuts.out_channels * cuts.serial_out)
    read = tuple(
        np.minimum(extent, (out - 1) * stride + (taps - 1) * dilation + 1)
        for extent, out, taps, stride, dilation in zip(
            product.input_field, field, kernel, product.stride, product.dilation, strict=True
        )
    )
    in_channels = in_grains * grains.in_channels
    out_channels = out_grains * grains.out_channels
    side_by_side = groups * grains.groups
    return LargestPart(
        group_grains=groups,
        batch=batch,
        field=field,
        kernel=kernel,
        in_grains=in_grains,
        out_grains=out_grains,
        read=read,
        inputs=side_by_side * batch * multiply_arrays(read) * in_channels,
        weights=side_by_side * multiply_arrays(kernel) * in_channels * out_channels,
        partials=side_by_side * batch * multiply_arrays(field) * out_channels,
    )
