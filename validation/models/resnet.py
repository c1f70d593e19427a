"""ResNet-50, ResNeXt-101 (32x4d) and the like, and the small one of the original's size tests."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable
from typing import Any

import jax

from validation.models.layers import batch_norm, conv, cross_entropy, dense, pool
from validation.models.variables import Variables

Part = Callable[[Variables, Any], Any]


@dc.dataclass(frozen=True)
class ResNet:
    """Bottleneck networks.

    Attributes:
      blocks: of each of the four stages.
      groups: of the 3x3 convolutions.
      base: channels of the 3x3 convolution in the first stage.
      classes: of the last layer.
      training: whether batch norms are there; in inference convolutions have taken their scales,
        as torch.onnx.export leaves them, and a shift is left.
    """

    blocks: tuple[int, int, int, int] = (3, 4, 6, 3)
    groups: int = 1
    base: int = 64
    classes: int = 1000
    training: bool = True

    def parts(self) -> list[Part]:
        """Stem, blocks and head, each of which feeds the next."""
        parts: list[Part] = [self._stem]
        for stage, count in enumerate(self.blocks):
            for number in range(count):
                parts.append(functools.partial(self._block, stage, number))
        return [*parts, self._head]

    def loss(self, v: Variables, images: Any, labels: Any, keep: bool = True) -> Any:
        """The loss of a batch; without `keep`, blocks are computed again in the backward pass."""
        x = images
        for part in self.parts():
            run = functools.partial(part, v)
            x = run(x) if keep else jax.checkpoint(run)(x)
        return cross_entropy(x, labels)

    def _stem(self, v: Variables, x: Any) -> Any:
        x = self._norm(v / "stem", conv(v / "stem", x, 64, 7, 2))
        return pool(jax.nn.relu(x), 3, 2)

    def _block(self, stage: int, number: int, v: Variables, x: Any) -> Any:
        v = v / f"stage{stage}" / f"block{number}"
        inner, outer = self.base << stage, 256 << stage
        stride = 2 if stage and not number else 1
        y = jax.nn.relu(self._norm(v / "1", conv(v / "1", x, inner)))
        y = conv(v / "2", y, inner, 3, stride, self.groups)
        y = jax.nn.relu(self._norm(v / "2", y))
        y = self._norm(v / "3", conv(v / "3", y, outer))
        if not number:
            x = self._norm(v / "short", conv(v / "short", x, outer, 1, stride))
        return jax.nn.relu(x + y)

    def _head(self, v: Variables, x: Any) -> Any:
        return dense(v / "head", x.mean((1, 2)), self.classes)

    def _norm(self, v: Variables, x: Any) -> Any:
        return batch_norm(v, x) if self.training else x + v("shift", x.shape[-1])


RESNET50 = ResNet()
RESNEXT101 = ResNet(blocks=(3, 4, 23, 3), groups=32, base=128)


def size_test(v: Variables, x: Any) -> Any:
    """The network of the original's size tests (resnet_size_test.py): a stem and two blocks."""
    x = pool(jax.nn.relu(_biased(v / "stem", x, 7, 2)), 3, 2)
    for number in range(2):
        y = jax.nn.relu(_biased(v / f"{number}a", x, 3, 1))
        x = jax.nn.relu(_biased(v / f"{number}b", y, 3, 1) + x)
    return dense(v / "head", pool(x, x.shape[1], 1, "VALID").reshape(x.shape[0], -1), 1000)


def _biased(v: Variables, x: Any, size: int, stride: int) -> Any:
    return conv(v, x, 64, size, stride) + v("bias", 64)
