"""BERT: encoder, pretraining and question-answering heads, whole or in pipeline stages."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from validation.models.layers import (
    cross_entropy,
    dense,
    drop,
    layer_norm,
    mlp,
    self_attention,
)
from validation.models.variables import Variables


@dc.dataclass(frozen=True)
class Bert:
    """Sizes.

    Attributes:
      layers: of the encoder.
      width: hidden size; the feed-forward part is four times as wide.
      heads: of attention.
      length: tokens of a sequence.
      masked: tokens of it that pretraining predicts.
      vocabulary: rows of the embedding; Graphcore's configurations have 30,400.
      dropout: of the embedding and of each layer's two parts.
      attention_dropout: of attention's weights.
      packed: whether a sequence holds several, which do not attend to each other.
      fused: whether attention's three first projections are one product.
    """

    layers: int = 24
    width: int = 1024
    heads: int = 16
    length: int = 128
    masked: int = 20
    vocabulary: int = 30_400
    dropout: float = 0.0
    attention_dropout: float = 0.0
    packed: bool = False
    fused: bool = False

    def embed(self, v: Variables, tokens: Any, *rest: Any) -> Any:
        """Word, position and segment embeddings, and which tokens may attend to which."""
        words = v("embedding", self.vocabulary, self.width)[tokens]
        x = words + v("positions", self.length, self.width)
        x = layer_norm(v / "norm", x + v("segments", 2, self.width)[0])
        return (drop(x, self.dropout), self._visible(tokens), *rest)

    def _visible(self, tokens: Any) -> Any:
        """[batch, heads, queries, keys], 1 or 0: not the padding, or one's own sequence alone."""
        if self.packed:
            sequences = tokens[:, None]
            return (sequences[..., None] == sequences[..., None, :]).astype(jnp.int16)
        return (tokens > 0).astype(jnp.int16)[:, None, None]

    def layer(self, v: Variables, x: Any, visible: Any, *rest: Any) -> Any:
        """One encoder layer."""
        mask = (visible.astype(x.dtype) - 1) * 1e3
        y = self_attention(v / "attention", x, self.heads, mask, self.attention_dropout, self.fused)
        x = layer_norm(v / "norm1", x + drop(y, self.dropout))
        y = mlp(v / "mlp", x, 4 * self.width)
        x = layer_norm(v / "norm2", x + drop(y, self.dropout))
        return (x, visible, *rest)

    def pretraining_loss(
        self, v: Variables, x: Any, _visible: Any, labels: Any, following: Any
    ) -> Any:
        """Masked words, with the embedding's own weights, and whether the sentences follow."""
        words = layer_norm(v / "mlm", dense(v / "transform", x[:, : self.masked], self.width))
        logits = words @ v("embedding", self.vocabulary, self.width).T
        pooled = jnp.tanh(dense(v / "pool", x[:, 0], self.width))
        return cross_entropy(logits, labels) + cross_entropy(dense(v / "nsp", pooled, 2), following)

    def squad_loss(self, v: Variables, x: Any, _visible: Any, start: Any, end: Any) -> Any:
        """Where an answer starts and ends."""
        logits = dense(v / "span", x, 2)
        return cross_entropy(logits[..., 0], start) + cross_entropy(logits[..., 1], end)

    def encoder(self, v: Variables, tokens: Any) -> Any:
        """Embedding and all layers."""
        values = self.embed(v, tokens)
        for number in range(self.layers):
            values = self.layer(v / f"layer{number}", *values)
        return values[0]

    def stages(self, split: Sequence[int], loss: Callable[..., Any]) -> list[Callable[..., Any]]:
        """Parts of so many layers, the first with the embedding, and one more with the loss.

        Each is `stage(variables, *values)`; what is not `x` is handed on.
        """
        if sum(split) != self.layers:
            raise ValueError(f"{split} are not {self.layers} layers")
        starts = [sum(split[:number]) for number in range(len(split))]
        parts = [
            functools.partial(self._part, number == 0, range(start, start + count))
            for number, (start, count) in enumerate(zip(starts, split, strict=True))
        ]
        return [*parts, functools.partial(_call, loss)]

    def _part(self, first: bool, layers: range, v: Variables, *values: Any) -> Any:
        if first:
            values = self.embed(v, *values)
        for number in layers:
            values = self.layer(v / f"layer{number}", *values)
        return values


LARGE = Bert()
BASE = Bert(layers=12, width=768, heads=12)


def _call(function: Callable[..., Any], v: Variables, *values: Any) -> Any:
    return function(v, *values)
