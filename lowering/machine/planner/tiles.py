"""Ways to cut a product over tiles, many at once, and what each leaves the largest tile with."""

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
    """What stays together when a product is cut: a vertex handles whole grains.

    Attributes:
      groups: groups that a vertex works on side by side.
      in_channels: input channels in one.
      out_channels: output channels in one.
    """

    groups: int = 1
    in_channels: int = 1
    out_channels: int = 1

    def of(self, product: Product) -> tuple[int, int, int]:
        """How many grains of groups, of input and of output channels a product has."""
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
    def tiles(self) -> Array:
        """Tiles that take part."""
        channels = self.in_channels * self.out_channels
        return self.groups * self.sharing * multiplied(self.kernel) * channels

    @property
    def repeats(self) -> Array:
        """Serial parts."""
        return self.serial_in * self.serial_out

    @property
    def depth(self) -> Array:
        """Partials of each output element, on different tiles."""
        return self.in_channels * multiplied(self.kernel)

    @property
    def sharing(self) -> Array:
        """Tiles that use the same weights; each holds a part of them."""
        return self.batch * multiplied(self.field)


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
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
    def rows(self) -> Array:
        """Positions of the output, all examples together."""
        return self.batch * multiplied(self.field)

    def rows_of_worker(self, workers: int) -> tuple[Array, Array]:
        """Rows of the busiest of the workers, and how many pieces of a row of outputs they are."""
        rows = ceil_div(self.rows, workers)
        return rows, ceil_div(rows, self.field[-1])

    @property
    def taps(self) -> Array:
        """Elements of its part of the kernel."""
        return multiplied(self.kernel)


def ceil_div(a: Any, b: Any) -> Any:
    """Division that rounds up, of numbers or arrays."""
    return -(-a // b)


def multiplied(arrays: Sequence[Array]) -> Array:
    """All of them together; at least one."""
    return functools.reduce(operator.mul, arrays)


def share(product: Product, grains: Grains, cuts: Cuts) -> Share:
    """What the largest tile gets (poplibs: ConvModel.cpp, constructModel: always rounded up)."""
    all_groups, ins, outs = grains.of(product)
    groups = ceil_div(all_groups, cuts.groups)
    batch = ceil_div(product.batch, cuts.batch)
    field = tuple(ceil_div(n, cut) for n, cut in zip(product.field, cuts.field, strict=True))
    kernel = tuple(ceil_div(n, cut) for n, cut in zip(product.kernel, cuts.kernel, strict=True))
    in_grains = ceil_div(ins, cuts.in_channels * cuts.serial_in)
    out_grains = ceil_div(outs, cuts.out_channels * cuts.serial_out)
    read = tuple(
        np.minimum(whole, (out - 1) * stride + (taps - 1) * dilation + 1)
        for whole, out, taps, stride, dilation in zip(
            product.input_field, field, kernel, product.stride, product.dilation, strict=True
        )
    )
    in_channels = in_grains * grains.in_channels
    out_channels = out_grains * grains.out_channels
    side_by_side = groups * grains.groups
    return Share(
        group_grains=groups,
        batch=batch,
        field=field,
        kernel=kernel,
        in_grains=in_grains,
        out_grains=out_grains,
        read=read,
        inputs=side_by_side * batch * multiplied(read) * in_channels,
        weights=side_by_side * multiplied(kernel) * in_channels * out_channels,
        partials=side_by_side * batch * multiplied(field) * out_channels,
    )
