"""The forms of a convolution that a CPU may compute faster than the convolution itself."""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax import lax

from lowering.jaxprs import JaxprEqn, typed_jax

Form = Callable[[Any, Any], Any]  # of images and filters
Ints = tuple[int, ...]

_MOST_SLICES = 32  # of images or products; each takes time to compile

# XLA's convolutions to this many features are slow: images times filters, up to this growth, took
# mostly a half to a fifth of their time, and never more, unless images have gaps.
_FEW_FEATURES = 4
_MOST_GROWTH_FOR_FEW_FEATURES = 5


@dc.dataclass(frozen=True, kw_only=True)
class Convolution:
    """An equation `conv_general_dilated` of float32 without groups.

    Attributes:
      images, filters, result: their shapes.
      params: the parameters of the equation.
      flipped: the dimensions of the filters that are to be read backwards.
    """

    images: Ints
    filters: Ints
    result: Ints
    params: dict[str, Any]
    flipped: Ints = ()

    @classmethod
    def from_equation(cls, eqn: JaxprEqn) -> Convolution:
        """Returns the convolution that an equation is."""
        avals: list[Any] = [var.aval for var in (*eqn.invars, *eqn.outvars)]
        images, filters, result = (aval.shape for aval in avals)
        return cls(images=images, filters=filters, result=result, params=eqn.params)

    @property
    def numbers(self) -> lax.ConvDimensionNumbers:
        """The dimension numbers: batch and features (or features out and in), then space."""
        return self.params["dimension_numbers"]

    @property
    def space_axes_of_filters(self) -> Ints:
        """The dimensions of the filters that are space."""
        return tuple(self.numbers.rhs_spec[2:])

    @property
    def image_size(self) -> Ints:
        """The size of an image."""
        return tuple(self.images[axis] for axis in self.numbers.lhs_spec[2:])

    @property
    def kernel_size(self) -> Ints:
        """The size of a filter."""
        return tuple(self.filters[axis] for axis in self.numbers.rhs_spec[2:])

    @property
    def result_size(self) -> Ints:
        """The size of an image of the result."""
        return tuple(self.result[axis] for axis in self.numbers.out_spec[2:])

    @property
    def has_small_images(self) -> bool:
        """A flag: images are smaller than filters, so that XLA's convolution is a plain loop."""
        return any(1 < i < k for i, k in zip(self.image_size, self.kernel_size, strict=True))

    @property
    def has_spread_images(self) -> bool:
        """A flag: there are gaps between the elements of images."""
        return any(spread > 1 for spread in self.params["lhs_dilation"])

    def find_faster_form(self) -> Form | None:
        """Returns the form that is faster than the convolution, or None."""
        if (product := self.find_product_form()) is not None:
            return product
        # Filling the gaps would be more work than the plain loop, which skips them.
        is_padded = self.has_small_images and not self.has_spread_images
        return self.convolve_padded_images if is_padded else None

    def convolve_padded_images(self, images: Any, filters: Any) -> Any:
        """Computes the convolution on images that are padded before it."""
        edges = [(0, 0, 0)] * len(self.images)
        for axis, edge in zip(self.numbers.lhs_spec[2:], self._padding_config(), strict=True):
            edges[axis] = edge
        # Without the barrier, XLA would make it a padding convolution again.
        images = typed_jax.optimization_barrier(_pad_if_needed(images, edges))
        count = len(self.image_size)
        changed = {"padding": ((0, 0),) * count, "lhs_dilation": (1,) * count}
        return typed_jax.conv_general_dilated_p.bind(images, filters, **{**self.params, **changed})

    def find_product_form(self) -> Form | None:
        """Returns the convolution as a product of matrices, if that is small enough to be fast.

        One factor, or the product, has an entry for each position, feature and element of the
        filter, and may take no more room than the largest of operands and result; a few times as
        much if the result has few features; and any room if the only other way is a plain loop.
        """
        max_elements: float = max(map(math.prod, (self.images, self.filters, self.result)))
        if self.has_small_images and self.has_spread_images:
            max_elements = math.inf
        num_offsets, num_positions = math.prod(self.kernel_size), math.prod(self.result_size)
        batch, features_in = (self.images[axis] for axis in self.numbers.lhs_spec[:2])
        features_out = self.filters[self.numbers.rhs_spec[0]]
        slices = num_offsets if self.flipped else min(num_offsets, num_positions)
        patches = batch * num_positions * features_in * num_offsets
        may_gather = slices <= _MOST_SLICES and patches <= max_elements
        spread = batch * math.prod(self.image_size) * features_out * num_offsets
        is_dense = all(stride == 1 for stride in self.params["window_strides"])
        has_few_features = features_out <= _FEW_FEATURES and not self.has_spread_images
        if has_few_features and not may_gather:
            max_elements *= _MOST_GROWTH_FOR_FEW_FEATURES
        may_scatter = is_dense and num_offsets <= _MOST_SLICES and spread <= max_elements
        if may_gather and may_scatter:
            # A dimension that comes first or last is contracted, or kept, without a transpose.
            edges = (0, len(self.filters) - 1)
            out, into, *_ = self.numbers.rhs_spec
            return (
                self.add_up_images_times_filters
                if into in edges and out not in edges
                else self.multiply_filters_by_patches
            )
        return (
            self.multiply_filters_by_patches
            if may_gather
            else self.add_up_images_times_filters
            if may_scatter
            else None
        )

    def multiply_filters_by_patches(self, images: Any, filters: Any) -> Any:
        """Computes the convolution as filters times patches of the images."""
        _, into, *space = self.numbers.rhs_spec
        is_by_position = (
            math.prod(self.result_size) < math.prod(self.kernel_size) and not self.flipped
        )
        patches = (
            self._patches_by_position(images) if is_by_position else self._patches_by_offset(images)
        )
        # The axes of the patches that belong to the filters' dimensions.
        if is_by_position:
            first, *kernel = range(len(self.result_size) + 1, patches.ndim)
        elif into < space[0]:
            first, *kernel = range(len(space) + 1)
        else:
            *kernel, first = range(len(space) + 1)
        axes = {into: first, **dict(zip(space, kernel, strict=True))}
        order = sorted(axes)
        product = self._dot_general(filters, patches, order, [axes[axis] for axis in order])
        return self._transpose_to_result(product, feature=0)

    def add_up_images_times_filters(self, images: Any, filters: Any) -> Any:
        """Computes images times filters, and adds each product to its positions in the result."""
        count, rank = len(self.kernel_size), len(self.filters)
        batch, feature, *image = self.numbers.lhs_spec
        _, into, *space = self.numbers.rhs_spec
        images = lax.transpose(images, [batch, *image, feature])
        product = self._dot_general(images, filters, [count + 1], [into])
        axes = [count + (axis if axis > into else axis + 1) for axis in range(rank)]
        total: Any = None
        for at in _all_positions(self.kernel_size):
            offset = self._offset_at(at)
            edges = [(0, 0, 0)]
            starts, limits = [0] * product.ndim, list(product.shape)
            for i, axis in enumerate(space):
                starts[axes[axis]], limits[axes[axis]] = at[i], at[i] + 1
                low = self.params["padding"][i][0] - offset[i] * self.params["rhs_dilation"][i]
                spread = self.params["lhs_dilation"][i]
                reach = low + (self.image_size[i] - 1) * spread + 1
                edges.append((low, self.result_size[i] - reach, spread - 1))
            part = lax.squeeze(lax.slice(product, starts, limits), [axes[axis] for axis in space])
            part = _pad_if_needed(part, [*edges, (0, 0, 0)])
            total = part if total is None else total + part
        return self._transpose_to_result(total, feature=count + 1)

    def _patches_by_position(self, images: Any) -> Any:
        """Returns patches [batch, *positions, features, *kernel] by a slice for each position."""
        batch, feature, *space = self.numbers.lhs_spec
        images = self._pad_and_dilate(lax.transpose(images, [batch, feature, *space]))
        strides, dilation = self.params["window_strides"], self.params["rhs_dilation"]
        slices = [
            _slice_with_strides(images, position, strides, self.kernel_size, dilation)
            for position in _all_positions(self.result_size)
        ]
        first, *other_extents = slices[0].shape
        return _stack_slices(slices, 1).reshape(first, *self.result_size, *other_extents)

    def _patches_by_offset(self, images: Any) -> Any:
        """Returns patches [features, *kernel, batch, *positions] by a slice for each offset.

        Features come after the kernel if they do so in the filters.
        """
        batch, feature, *space = self.numbers.lhs_spec
        images = self._pad_and_dilate(lax.transpose(images, [feature, batch, *space]))
        strides, dilation = self.params["window_strides"], self.params["rhs_dilation"]
        slices = [
            _slice_with_strides(images, self._offset_at(at), dilation, self.result_size, strides)
            for at in _all_positions(self.kernel_size)
        ]
        first, *other_extents = slices[0].shape
        _, into, space, *_ = self.numbers.rhs_spec
        if into < space:
            return _stack_slices(slices, 1).reshape(first, *self.kernel_size, *other_extents)
        return _stack_slices(slices, 0).reshape(*self.kernel_size, first, *other_extents)

    def _offset_at(self, at: Ints) -> Ints:
        """Returns the offset of the filters' element at a position."""
        both = zip(at, self.kernel_size, self.space_axes_of_filters, strict=True)
        return tuple(size - 1 - i if axis in self.flipped else i for i, size, axis in both)

    def _pad_and_dilate(self, images: Any) -> Any:
        """Pads and dilates images whose dimensions of space come last."""
        return _pad_if_needed(images, [(0, 0, 0), (0, 0, 0), *self._padding_config()])

    def _padding_config(self) -> list[tuple[int, int, int]]:
        pairs = zip(self.params["padding"], self.params["lhs_dilation"], strict=True)
        return [(low, high, spread - 1) for (low, high), spread in pairs]

    def _dot_general(self, lhs: Any, rhs: Any, of_lhs: Sequence[int], of_rhs: Sequence[int]) -> Any:
        numbers = ((of_lhs, of_rhs), ((), ()))
        return typed_jax.dot_general(lhs, rhs, numbers, precision=self.params["precision"])

    def _transpose_to_result(self, product: Any, feature: int) -> Any:
        """Returns the result from batch and positions in order, with features at one end."""
        other_axes = [axis for axis in range(product.ndim) if axis != feature]
        axes_in_order = [other_axes[0], feature, *other_axes[1:]]  # as `out_spec` names them
        order = dict(zip(self.numbers.out_spec, axes_in_order, strict=True))
        return lax.transpose(product, [order[axis] for axis in range(product.ndim)])


def _all_positions(sizes: Ints) -> Iterator[Ints]:
    return itertools.product(*map(range, sizes))


def _pad_if_needed(x: Any, edges: Sequence[tuple[int, int, int]]) -> Any:
    return lax.pad(x, np.float32(0), edges) if any(map(any, edges)) else x


def _slice_with_strides(
    x: Any, position: Ints, step_sizes: Ints, sizes: Ints, strides: Ints
) -> Any:
    """Slices `sizes` elements per dimension from the third on, with strides."""
    starts = [i * step for i, step in zip(position, step_sizes, strict=True)]
    reach = zip(starts, sizes, strides, strict=True)
    limits = [start + (size - 1) * stride + 1 for start, size, stride in reach]
    outer = x.shape[:2]
    return lax.slice(x, [0, 0, *starts], [*outer, *limits], [1, 1, *strides])


def _stack_slices(slices: Sequence[Any], axis: int) -> Any:
    return lax.concatenate([lax.expand_dims(part, [axis]) for part in slices], axis)
