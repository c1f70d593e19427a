"""EfficientNet: B4 with grouped convolutions for training, EdgeTPU-L for inference."""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from collections.abc import Callable
from typing import Any

import jax

from validation.models.layers import batch_norm, conv, cross_entropy, dense, group_norm
from validation.models.variables import Variables

Part = Callable[[Variables, Any], Any]


@dc.dataclass(frozen=True)
class Stage:
    """Equal blocks: `fused` ones widen with the large convolution and have no depthwise one."""

    repeats: int
    size: int
    stride: int
    expand: int
    channels: int
    fused: bool = False


# tensorflow/tpu: models/official/efficientnet/efficientnet_builder.py
B0 = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)
# tensorflow/tpu: models/official/efficientnet/edgetpu
EDGE = (
    Stage(1, 3, 1, 4, 24, fused=True),
    Stage(2, 3, 2, 8, 32, fused=True),
    Stage(4, 3, 2, 8, 48, fused=True),
    Stage(5, 5, 2, 8, 96),
    Stage(4, 5, 1, 8, 144),
    Stage(2, 5, 2, 8, 192),
)


@dc.dataclass(frozen=True)
class EfficientNet:
    """A scaled network.

    Attributes:
      stages: of the unscaled network.
      width: factor of all channels.
      depth: factor of all repeats.
      group: channels of a group in the middle convolutions; 1 is depthwise.
      expand: replaces the stages' own expansion, where that is not 1.
      squeeze: whether blocks weigh their channels (squeeze and excitation).
      group_norms: normalise groups of channels instead of batches.
      training: whether batch norms compute statistics.
    """

    stages: tuple[Stage, ...] = B0
    width: float = 1.4
    depth: float = 1.8
    group: int = 16
    expand: int | None = 4
    squeeze: bool = True
    group_norms: bool = False
    training: bool = True

    def parts(self) -> list[tuple[str, Part]]:
        """Named parts that feed one another; blocks are called `block2a` as in the original."""
        parts: list[tuple[str, Part]] = [("stem", self._stem)]
        for index, stage in enumerate(self.stages):
            for number in range(math.ceil(stage.repeats * self.depth)):
                name = f"block{index + 1}{chr(ord('a') + number)}"
                stride = 1 if number else stage.stride
                parts.append((name, functools.partial(self._block, name, stage, stride)))
        return [*parts, ("head", self._head)]

    def logits(self, v: Variables, images: Any) -> Any:
        """All parts, one after the other."""
        x = images
        for _, part in self.parts():
            x = part(v, x)
        return x

    def loss(self, v: Variables, images: Any, labels: Any) -> Any:
        """The loss of a batch."""
        return cross_entropy(self.logits(v, images), labels)

    def _stem(self, v: Variables, x: Any) -> Any:
        return self._conv(v / "stem", x, self._channels(32), 3, 2)

    def _head(self, v: Variables, x: Any) -> Any:
        x = self._conv(v / "top", x, self._channels(1280))
        return dense(v / "head", x.mean((1, 2)), 1000)

    def _block(self, name: str, stage: Stage, stride: int, v: Variables, x: Any) -> Any:
        v, before = v / name, x.shape[-1]
        ratio = stage.expand if self.expand is None or stage.expand == 1 else self.expand
        hidden = before * ratio
        if stage.fused:  # its narrowing convolution has the stride
            y = self._conv(v / "expand", x, hidden, stage.size)
        else:
            y = self._conv(v / "expand", x, hidden) if ratio > 1 else x
            groups = max(1, hidden // self.group)
            y = self._conv(v / "middle", y, hidden, stage.size, stride, groups)
        if self.squeeze:
            y = self._excite(v / "squeeze", y, max(1, before // 4))
        y = conv(v / "narrow", y, self._channels(stage.channels), 1, stride if stage.fused else 1)
        y = self._norm(v / "narrow", y)
        return x + y if x.shape == y.shape else y

    def _excite(self, v: Variables, x: Any, width: int) -> Any:
        weight = jax.nn.silu(dense(v / "in", x.mean((1, 2)), width))
        return x * jax.nn.sigmoid(dense(v / "out", weight, x.shape[-1]))[:, None, None]

    def _conv(
        self, v: Variables, x: Any, channels: int, size: int = 1, stride: int = 1, groups: int = 1
    ) -> Any:
        x = self._norm(v, conv(v, x, channels, size, stride, groups))
        return jax.nn.silu(x) if self.squeeze else jax.nn.relu(x)

    def _norm(self, v: Variables, x: Any) -> Any:
        return group_norm(v, x) if self.group_norms else batch_norm(v, x, self.training)

    def _channels(self, unscaled: int) -> int:
        """Scaled, rounded to a multiple of 8 that is not under nine tenths of it."""
        wanted = unscaled * self.width
        rounded = max(8, int(wanted + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * wanted else rounded


B4_G16 = EfficientNet()
EDGE_L = EfficientNet(EDGE, 1.2, 1.4, group=1, expand=None, squeeze=False, training=False)
