"""The forms of a convolution that a CPU may compute faster than the convolution itself."""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax import lax

from lowering.jaxpr import JaxprEqn

Form = Callable[[Any, Any], Any]  # of images and filters
Ints = tuple[int, ...]

_MOST_SLICES = 32  # of images or products; each takes time to compile


@dc.dataclass(frozen=True, kw_only=True)
class Convolution:
    """An equation `conv_general_dilated` of float32 without groups.

    Attributes:
      images, filters, result: their shapes.
      params: of the equation.
      flipped: the dimensions of the filters that are to be read backwards.
    """

    images: Ints
    filters: Ints
    result: Ints
    params: dict[str, Any]
    flipped: Ints = ()

    @classmethod
    def of(cls, eqn: JaxprEqn) -> Convolution:
        """The convolution that an equation is."""
        avals: list[Any] = [var.aval for var in (*eqn.invars, *eqn.outvars)]
        images, filters, result = (aval.shape for aval in avals)
        return cls(images=images, filters=filters, result=result, params=eqn.params)

    @property
    def numbers(self) -> lax.ConvDimensionNumbers:
        """Which dimensions are batch and features, or features out and in; then space."""
        return self.params["dimension_numbers"]

    @property
    def space(self) -> Ints:
        """The dimensions of the filters that are space."""
        return tuple(self.numbers.rhs_spec[2:])

    @property
    def image(self) -> Ints:
        """The size of an image."""
        return tuple(self.images[axis] for axis in self.numbers.lhs_spec[2:])

    @property
    def kernel(self) -> Ints:
        """The size of a filter."""
        return tuple(self.filters[axis] for axis in self.numbers.rhs_spec[2:])

    @property
    def places(self) -> Ints:
        """The size of an image of the result."""
        return tuple(self.result[axis] for axis in self.numbers.out_spec[2:])

    @property
    def has_small_images(self) -> bool:
        """Whether images are smaller than filters: XLA's convolution is a plain loop then."""
        return any(1 < i < k for i, k in zip(self.image, self.kernel, strict=True))

    @property
    def has_spread_images(self) -> bool:
        """Whether there are gaps between the elements of images."""
        return any(spread > 1 for spread in self.params["lhs_dilation"])

    def faster(self) -> Form | None:
        """The form that is faster than the convolution, if there is one."""
        if (product := self.product()) is not None:
            return product
        # To fill gaps would be more work than the plain loop, which leaves them out.
        is_padded = self.has_small_images and not self.has_spread_images
        return self.of_padded if is_padded else None

    def of_padded(self, images: Any, filters: Any) -> Any:
        """The convolution of images that are padded before it."""
        edges = [(0, 0, 0)] * len(self.images)
        for axis, edge in zip(self.numbers.lhs_spec[2:], self._edges(), strict=True):
            edges[axis] = edge
        # Without the barrier, XLA would make it a padding convolution again.
        images = lax.optimization_barrier(_padded(images, edges))
        count = len(self.image)
        changed = {"padding": ((0, 0),) * count, "lhs_dilation": (1,) * count}
        return lax.conv_general_dilated_p.bind(images, filters, **{**self.params, **changed})

    def product(self) -> Form | None:
        """The convolution as a product of matrices, if one is small enough to be fast.

        One factor, or the product, has an entry for each place, feature and element of the
        filter, and takes no more room than the largest of operands and result, unless only a plain
        loop is left.
        """
        room: float = max(map(math.prod, (self.images, self.filters, self.result)))
        if self.has_small_images and self.has_spread_images:
            room = math.inf
        offsets, places = math.prod(self.kernel), math.prod(self.places)
        batch, features_in = (self.images[axis] for axis in self.numbers.lhs_spec[:2])
        features_out = self.filters[self.numbers.rhs_spec[0]]
        slices = offsets if self.flipped else min(offsets, places)
        patches = batch * places * features_in * offsets
        may_gather = slices <= _MOST_SLICES and patches <= room
        spread = batch * math.prod(self.image) * features_out * offsets
        is_dense = all(stride == 1 for stride in self.params["window_strides"])
        may_scatter = is_dense and offsets <= _MOST_SLICES and spread <= room
        if may_gather and may_scatter:
            # A dimension that comes first or last is contracted, or kept, without a transpose.
            edges = (0, len(self.filters) - 1)
            out, into, *_ = self.numbers.rhs_spec
            return self.scattered if into in edges and out not in edges else self.gathered
        return self.gathered if may_gather else self.scattered if may_scatter else None

    def gathered(self, images: Any, filters: Any) -> Any:
        """Filters times patches of the images."""
        _, into, *space = self.numbers.rhs_spec
        by_place = math.prod(self.places) < math.prod(self.kernel) and not self.flipped
        patches = self._of_places(images) if by_place else self._of_offsets(images)
        # Where the patches have what the filters' dimensions have.
        if by_place:
            first, *kernel = range(len(self.places) + 1, patches.ndim)
        elif into < space[0]:
            first, *kernel = range(len(space) + 1)
        else:
            *kernel, first = range(len(space) + 1)
        axes = {into: first, **dict(zip(space, kernel, strict=True))}
        order = sorted(axes)
        product = self._dot(filters, patches, order, [axes[axis] for axis in order])
        return self._as_result(product, feature=0)

    def scattered(self, images: Any, filters: Any) -> Any:
        """Images times filters: what each place adds to each one of the result."""
        count, rank = len(self.kernel), len(self.filters)
        batch, feature, *image = self.numbers.lhs_spec
        _, into, *space = self.numbers.rhs_spec
        images = lax.transpose(images, [batch, *image, feature])
        product = self._dot(images, filters, [count + 1], [into])
        axes = [count + (axis if axis > into else axis + 1) for axis in range(rank)]
        total: Any = None
        for at in _steps(self.kernel):
            offset = self._offset(at)
            edges = [(0, 0, 0)]
            starts, limits = [0] * product.ndim, list(product.shape)
            for i, axis in enumerate(space):
                starts[axes[axis]], limits[axes[axis]] = at[i], at[i] + 1
                low = self.params["padding"][i][0] - offset[i] * self.params["rhs_dilation"][i]
                spread = self.params["lhs_dilation"][i]
                reach = low + (self.image[i] - 1) * spread + 1
                edges.append((low, self.places[i] - reach, spread - 1))
            part = lax.squeeze(lax.slice(product, starts, limits), [axes[axis] for axis in space])
            part = _padded(part, [*edges, (0, 0, 0)])
            total = part if total is None else total + part
        return self._as_result(total, feature=count + 1)

    def _of_places(self, images: Any) -> Any:
        """Patches [batch, *places, features, *kernel]: a slice for each place."""
        batch, feature, *space = self.numbers.lhs_spec
        images = self._spread(lax.transpose(images, [batch, feature, *space]))
        strides, dilation = self.params["window_strides"], self.params["rhs_dilation"]
        slices = [
            _strided(images, place, strides, self.kernel, dilation) for place in _steps(self.places)
        ]
        first, *others = slices[0].shape
        return _stacked(slices, 1).reshape(first, *self.places, *others)

    def _of_offsets(self, images: Any) -> Any:
        """Patches [features, *kernel, batch, *places]: a slice for each offset.

        Features come after the kernel, if so they do in the filters.
        """
        batch, feature, *space = self.numbers.lhs_spec
        images = self._spread(lax.transpose(images, [feature, batch, *space]))
        strides, dilation = self.params["window_strides"], self.params["rhs_dilation"]
        slices = [
            _strided(images, self._offset(at), dilation, self.places, strides)
            for at in _steps(self.kernel)
        ]
        first, *others = slices[0].shape
        _, into, space, *_ = self.numbers.rhs_spec
        if into < space:
            return _stacked(slices, 1).reshape(first, *self.kernel, *others)
        return _stacked(slices, 0).reshape(*self.kernel, first, *others)

    def _offset(self, at: Ints) -> Ints:
        """The offset whose element the filters have at a place."""
        both = zip(at, self.kernel, self.space, strict=True)
        return tuple(size - 1 - i if axis in self.flipped else i for i, size, axis in both)

    def _spread(self, images: Any) -> Any:
        """Images whose dimensions of space come last, as padding and dilation say."""
        return _padded(images, [(0, 0, 0), (0, 0, 0), *self._edges()])

    def _edges(self) -> list[tuple[int, int, int]]:
        pairs = zip(self.params["padding"], self.params["lhs_dilation"], strict=True)
        return [(low, high, spread - 1) for (low, high), spread in pairs]

    def _dot(self, lhs: Any, rhs: Any, of_lhs: Sequence[int], of_rhs: Sequence[int]) -> Any:
        numbers = ((of_lhs, of_rhs), ((), ()))
        return lax.dot_general(lhs, rhs, numbers, precision=self.params["precision"])

    def _as_result(self, product: Any, feature: int) -> Any:
        """The result from batch and places in order, with features at one end."""
        others = [axis for axis in range(product.ndim) if axis != feature]
        given = [others[0], feature, *others[1:]]  # as `out_spec` names them
        order = dict(zip(self.numbers.out_spec, given, strict=True))
        return lax.transpose(product, [order[axis] for axis in range(product.ndim)])


def _steps(sizes: Ints) -> Iterator[Ints]:
    return itertools.product(*map(range, sizes))


def _padded(x: Any, edges: Sequence[tuple[int, int, int]]) -> Any:
    return lax.pad(x, np.float32(0), edges) if any(map(any, edges)) else x


def _strided(x: Any, at: Ints, apart: Ints, sizes: Ints, strides: Ints) -> Any:
    """`sizes` elements of each dimension from the third on, in strides, from `at` steps on."""
    starts = [i * step for i, step in zip(at, apart, strict=True)]
    reach = zip(starts, sizes, strides, strict=True)
    limits = [start + (size - 1) * stride + 1 for start, size, stride in reach]
    outer = x.shape[:2]
    return lax.slice(x, [0, 0, *starts], [*outer, *limits], [1, 1, *strides])


def _stacked(slices: Sequence[Any], axis: int) -> Any:
    return lax.concatenate([lax.expand_dims(part, [axis]) for part in slices], axis)
