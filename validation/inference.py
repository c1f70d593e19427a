"""Throughput of published models in inference, on one IPU each (bytedance/ByteMLPerf, PopRT).

Batches follow each other without a gap: PopRT fetches them ahead, 128 in a call. Sums of products
are kept in halves (ByteMLPerf@a30b4f97: compile_backend_ipu.py, partials_type); sizes of inputs are
those of model_zoo/*.json, memory proportions those of interact_infos/*.json. PopRT compiles with
PopART. Where the row says fp8, operands of products are taken to be so, at twice the rate; what
they save in exchange is not modelled.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.scopes import partials_type
from lowering.machine import PlanOptions
from lowering.machine.target import Target
from validation.models import bert, resnet, vit
from validation.models.layers import attention, dense, layer_norm, mlp, split_heads
from validation.models.variables import Variables, shapes, struct
from validation.program import as_popart, device_cycles, predict_program
from validation.row import Prediction, Row, SkipError

HALF = jnp.float16
LENGTH = 384  # tokens of a sequence
SQUAD = dc.replace(bert.BASE, length=LENGTH, vocabulary=30_522, packed=True)
RESNET50 = dc.replace(resnet.RESNET50, training=False)


def predict(row: Row) -> Prediction | None:
    """The throughput of a row whose phase is inference."""
    if row.workload.get("phase") != "inference":
        return None
    if row.ipus != 1:
        raise SkipError("inference on several IPUs is not modelled")
    batch, precision = int(row.number("batch")), str(row.workload.get("precision"))
    if precision not in ("fp16", "fp8"):
        raise SkipError(f"no inference in {precision}")
    found = [(b, share) for pattern, b, share in MODELS if re.search(pattern, row.text)]
    if not found:
        raise SkipError("the sizes of the model are not said")
    build, proportion = found[0]
    model, given = build(batch)
    target = _with_fp8(row.target) if precision == "fp8" else row.target
    assumed, items = ("batches follow each other without a gap",), float(batch)
    if "packed" in str(row.workload.get("detail")):
        questions = questions_in_a_sequence(batch)
        items *= questions
        assumed = (*assumed, f"{questions:.2f} questions in each sequence of {LENGTH} tokens")
    cycles = _batch_cycles(model, given, target, proportion)
    return Prediction(cycles=cycles, items=items, assumptions=assumed)


@functools.cache
def questions_in_a_sequence(batch: int, batches: int = 200) -> float:
    """How many questions first fit packs into sequences, of the lengths that the benchmark draws.

    ByteMLPerf@a30b4f97: engine_poprt.py, benchmark_pack. A batch takes up to two to 2.7 questions a
    sequence (max_pack_num), which seldom counts.
    """
    draw = random.Random(0)
    lengths = (min(max(int(draw.gauss(172, 172)), 1), LENGTH) for _ in itertools.count())
    question, packed = next(lengths), 0
    for _ in range(batches):
        left = [LENGTH] * batch
        while (place := next((i for i, n in enumerate(left) if n >= question), None)) is not None:
            left[place] -= question
            packed += 1
            question = next(lengths)
    return packed / (batches * batch)


def _batch_cycles(
    model: Callable[..., Any], given: Any, target: Target, proportion: float
) -> float:
    variables = shapes(model, HALF, given)

    def run(values: Any, given: Any) -> Any:
        with partials_type(HALF):
            return model(Variables(HALF, values), given)

    plans = PlanOptions(matmul_proportion=proportion, convolution_proportion=proportion)
    profile = predict_program(as_popart(run), [variables, given], target, plans=plans)
    return device_cycles(profile)


def _with_fp8(target: Target) -> Target:
    """The chip with twice the products of halves in a cycle: 560 TFLOP/s instead of 280 (C600)."""
    rates = tuple(
        (pair, 2 * rate if pair[0] == "float16" else rate) for pair, rate in target.macs_per_cycle
    )
    return dc.replace(target, macs_per_cycle=rates)


def _images(
    parts: list[Any], side: int, batch: int
) -> tuple[Callable[..., Any], jax.ShapeDtypeStruct]:
    def model(v: Variables, x: Any) -> Any:
        return functools.reduce(lambda x, part: part(v, x), parts, x)

    return model, struct(HALF, batch, side, side, 3)


def _questions(shared: bool, batch: int) -> tuple[Callable[..., Any], jax.ShapeDtypeStruct]:
    """BERT-Base with two outputs for each token; with one layer twelve times it is ALBERT."""

    def model(v: Variables, tokens: Any) -> Any:
        values = SQUAD.embed(v, tokens)
        for number in range(SQUAD.layers):
            values = SQUAD.layer(v / ("layer" if shared else f"layer{number}"), *values)
        return dense(v / "span", values[0], 2)

    return model, struct(jnp.int32, batch, LENGTH)


def _captions(batch: int) -> tuple[Callable[..., Any], jax.ShapeDtypeStruct]:
    """The text encoder of Stable Diffusion, of CLIP ViT-L/14: 12 layers of 768, 77 tokens."""

    def model(v: Variables, tokens: Any) -> Any:
        x = v("embedding", 49_408, 768)[tokens] + v("positions", 77, 768)
        for number in range(12):
            x = vit.vit_block(v / f"layer{number}", x, 12, _quick_gelu)
        return layer_norm(v / "last", x)

    return model, struct(jnp.int32, batch, 77)


def _quick_gelu(x: Any) -> Any:
    return x * jax.nn.sigmoid(1.702 * x)


def _disentangled(batch: int) -> tuple[Callable[..., Any], jax.ShapeDtypeStruct]:
    """DeBERTa-Base: attention also goes by relative positions, of queries and of keys."""
    near = (jnp.arange(LENGTH)[:, None] - jnp.arange(LENGTH) + LENGTH - 1).astype(jnp.uint32)

    def score(q: Any, positions: Any) -> Any:
        of_all = q @ split_heads(positions[None], SQUAD.heads).mT
        nearest = jnp.broadcast_to(near, (*q.shape[:3], LENGTH))
        return jnp.take_along_axis(of_all, nearest, -1, mode="promise_in_bounds")

    def attend(v: Variables, x: Any, relative: Any, mask: Any) -> Any:
        q, k, value = (dense(v / name, x, SQUAD.width) for name in ("q", "k", "v"))
        keys, queries = (dense(v / name, relative, SQUAD.width) for name in ("key", "query"))
        bias = score(split_heads(q, SQUAD.heads), keys)
        bias = bias + score(split_heads(k, SQUAD.heads), queries).mT
        mixed = attention(q, k, value, SQUAD.heads, bias + mask)
        return dense(v / "out", mixed, SQUAD.width)

    def model(v: Variables, tokens: Any) -> Any:
        x, visible = SQUAD.embed(v, tokens)
        mask = (visible.astype(x.dtype) - 1) * 1e3
        relative = v("relative", 2 * LENGTH, SQUAD.width)
        for number in range(SQUAD.layers):
            part = v / f"layer{number}"
            x = layer_norm(part / "norm1", x + attend(part / "attention", x, relative, mask))
            x = layer_norm(part / "norm2", x + mlp(part / "mlp", x, 4 * SQUAD.width))
        return dense(v / "span", x, 2)

    return model, struct(jnp.int32, batch, LENGTH)


Build = Callable[[int], tuple[Callable[..., Any], jax.ShapeDtypeStruct]]
MODELS: tuple[tuple[str, Build, float], ...] = (
    ("resnet-?50", functools.partial(_images, RESNET50.parts(), 224), 0.6),
    ("swin-large", functools.partial(_images, vit.SWIN_LARGE_384.parts(), 384), 0.2),
    ("^(bert|roberta)-", functools.partial(_questions, False), 0.4),
    ("^albert-", functools.partial(_questions, True), 0.5),
    ("^deberta-", _disentangled, 0.4),
    ("^clip-", _captions, 0.8),
)
"""What the names of models mean, and the share of a tile that products may take."""
