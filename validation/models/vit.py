"""Vision transformers: DINO's student and teacher, and Swin."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from validation.models.layers import (
    conv,
    cross_entropy,
    dense,
    drop_path,
    layer_norm,
    mlp,
    self_attention,
)
from validation.models.variables import Variables

Part = Callable[[Variables, Any], Any]


def vit_block(
    v: Variables, x: Any, heads: int, activation: Any = jax.nn.gelu, drops_path: bool = False
) -> Any:
    """A pre-norm transformer block; with `drops_path`, either part may be left out at random."""
    y = self_attention(v / "attention", layer_norm(v / "norm1", x), heads)
    x = x + (drop_path(y) if drops_path else y)
    y = mlp(v / "mlp", layer_norm(v / "norm2", x), 4 * x.shape[-1], activation)
    return x + (drop_path(y) if drops_path else y)


def erf_gelu(x: Any) -> Any:
    """As DINO's example writes it, in operations of their own (vision/dino: core/gelu.py)."""
    part = jax.lax.erf(x / 2**0.5)
    cdf = 0.5 * (1.0 + part)
    return x * cdf


@dc.dataclass(frozen=True)
class Vit:
    """ViT-B/16 by default, with the projection head of DINO (facebookresearch/dino)."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    patch: int = 16
    outputs: int = 65_536
    activation: Callable[[Any], Any] = jax.nn.gelu
    drops_path: bool = False

    def embed(self, v: Variables, images: Any) -> Any:
        """Patches, a class token and positions."""
        x = conv(v / "patches", images, self.width, self.patch, self.patch, padding="VALID")
        x = x.reshape(x.shape[0], -1, self.width)
        token = jnp.broadcast_to(v("class", 1, 1, self.width), (x.shape[0], 1, self.width))
        x = jnp.concatenate([token, x], 1)
        return x + v(f"positions{x.shape[1]}", x.shape[1], self.width)

    def block(self, number: int, v: Variables, x: Any) -> Any:
        """One block."""
        return vit_block(v / f"block{number}", x, self.heads, self.activation, self.drops_path)

    def project(self, v: Variables, x: Any) -> Any:
        """The head: three layers, a bottleneck of 256 and the outputs, whose weights have norms."""
        y = self.activation(dense(v / "head1", layer_norm(v / "norm", x)[:, 0], 2048))
        y = self.activation(dense(v / "head2", y, 2048))
        last = v("last", 256, self.outputs)
        last = last * (v("lengths", self.outputs) * jax.lax.rsqrt((last * last).sum(0)))
        return dense(v / "head3", y, 256) @ last


VIT_BASE = Vit()
DINO = Vit(activation=erf_gelu, drops_path=True)


@dc.dataclass(frozen=True)
class Swin:
    """A Swin transformer (microsoft/Swin-Transformer).

    Attributes:
      width: channels of the first stage; twice as many in each further one.
      depths: blocks of each stage.
      heads: of each stage's attention.
      window: the side of a window: 7 on images of 224x224, 12 on 384x384.
      multiple: attention pads the tokens of a window to a multiple of it, and masks the padding
        (graphcore/examples: vision/swin/pytorch/models/swin_transformer.py).
      drops_path: whether the parts of blocks may be left out at random.
    """

    width: int = 128
    depths: tuple[int, ...] = (2, 2, 18, 2)
    heads: tuple[int, ...] = (4, 8, 16, 32)
    window: int = 7
    multiple: int = 1
    drops_path: bool = False

    def parts(self) -> list[Part]:
        """Patches, blocks with the merges before them, and the head."""
        parts: list[Part] = [self._embed]
        for stage, depth in enumerate(self.depths):
            for number in range(depth):
                parts.append(functools.partial(self._block, stage, number))
        return [*parts, self._head]

    def _embed(self, v: Variables, images: Any) -> Any:
        x = conv(v / "patches", images, self.width, 4, 4, padding="VALID")
        return layer_norm(v / "embedding", x)

    def _block(self, stage: int, number: int, v: Variables, x: Any) -> Any:
        v = v / f"stage{stage}" / f"block{number}"
        if stage and not number:
            x = self._merge(v / "merge", x)
        shift = self.window // 2 if number % 2 and x.shape[1] > self.window else 0
        y = layer_norm(v / "norm1", x)
        y = jnp.roll(y, (-shift, -shift), (1, 2)) if shift else y
        y = self._attend(v, y, self.heads[stage], shift > 0)
        y = jnp.roll(y, (shift, shift), (1, 2)) if shift else y
        x = x + (drop_path(y) if self.drops_path else y)
        y = mlp(v / "mlp", layer_norm(v / "norm2", x), 4 * x.shape[-1])
        return x + (drop_path(y) if self.drops_path else y)

    def _attend(self, v: Variables, x: Any, heads: int, shifted: bool) -> Any:
        batch, height, width, channels = x.shape
        size, rows, columns = self.window, height // self.window, width // self.window
        y = x.reshape(batch, rows, size, columns, size, channels).swapaxes(2, 3)
        y = self._attend_in_windows(v, y.reshape(-1, size * size, channels), heads, shifted)
        y = y.reshape(batch, rows, columns, size, size, channels).swapaxes(2, 3)
        return y.reshape(x.shape)

    def _attend_in_windows(self, v: Variables, x: Any, heads: int, shifted: bool) -> Any:
        """Attention of [windows, tokens, channels]; the mask of padding or of a shift is added."""
        tokens = x.shape[1]
        padding = -tokens % self.multiple
        x = jnp.pad(x, ((0, 0), (0, padding), (0, 0)))
        bias = jnp.pad(v("bias", heads, tokens, tokens), ((0, 0), (0, padding), (0, padding)))
        if padding or shifted:
            bias = bias + jnp.zeros((x.shape[0], 1, *bias.shape[1:]), x.dtype)
        return self_attention(v / "attention", x, heads, bias)[:, :tokens]

    def _merge(self, v: Variables, x: Any) -> Any:
        batch, height, width, channels = x.shape
        y = x.reshape(batch, height // 2, 2, width // 2, 2, channels).swapaxes(2, 3)
        y = layer_norm(v / "norm", y.reshape(batch, height // 2, width // 2, 4 * channels))
        return y @ v("kernel", 4 * channels, 2 * channels)

    def _head(self, v: Variables, x: Any) -> Any:
        return dense(v / "head", layer_norm(v / "last", x).mean((1, 2)), 1000)

    def loss(self, v: Variables, images: Any, labels: Any) -> Any:
        """The loss of a batch."""
        x = images
        for part in self.parts():
            x = part(v, x)
        return cross_entropy(x, labels)


SWIN_BASE = Swin()
SWIN_LARGE = Swin(width=192, heads=(6, 12, 24, 48))
SWIN_LARGE_384 = dc.replace(SWIN_LARGE, window=12)
