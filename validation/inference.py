"""Throughput of published models in inference, on one IPU each (bytedance/ByteMLPerf, PopRT).

Batches follow each other without a gap: PopRT fetches them ahead, 128 in a call. Sums of products
are kept in halves (ByteMLPerf@7ed25996: compile_backend_ipu.py, partials_type). Where the row says
fp8, operands of products are taken to be so, at twice the rate; what they save in exchange is not
modelled.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.scopes import partials_type
from lowering.machine.target import Target
from validation.models import bert, resnet, vit
from validation.models.layers import dense
from validation.models.variables import Variables, shapes, struct
from validation.program import device_cycles, predict_program
from validation.row import Prediction, Row, SkipError

HALF = jnp.float16
LENGTH = 384  # tokens of a sequence: model_zoo/*.json
PACKED = 2.25  # questions of SQuAD in a sequence: 384 tokens over their mean, some 170
SQUAD = dc.replace(bert.BASE, length=LENGTH, vocabulary=30_522)
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
    found = [build for pattern, build in MODELS if re.search(pattern, row.text)]
    if not found:
        raise SkipError("the sizes of the model are not said")
    packed = "packed" in str(row.workload.get("detail"))
    model, given = found[0](math.ceil(batch / PACKED) if packed else batch)
    target = _with_fp8(row.target) if precision == "fp8" else row.target
    assumed = ("batches follow each other without a gap",)
    if packed:
        assumed = (*assumed, f"{PACKED} sequences of the batch in one of {LENGTH} tokens")
    return Prediction(cycles=_batch_cycles(model, given, target), items=batch, assumptions=assumed)


def _batch_cycles(model: Callable[..., Any], given: Any, target: Target) -> float:
    variables = shapes(model, HALF, given)

    def run(values: Any, given: Any) -> Any:
        with partials_type(HALF):
            return model(Variables(HALF, values), given)

    return device_cycles(predict_program(run, [variables, given], target))


def _with_fp8(target: Target) -> Target:
    """The chip with twice the products of halves in a cycle: 560 TFLOP/s instead of 280 (C600)."""
    rates = tuple(
        (pair, 2 * rate if pair[0] == "float16" else rate) for pair, rate in target.macs_per_cycle
    )
    return dc.replace(target, macs_per_cycle=rates)


def _images(parts: list[Any], batch: int) -> tuple[Callable[..., Any], jax.ShapeDtypeStruct]:
    def model(v: Variables, x: Any) -> Any:
        return functools.reduce(lambda x, part: part(v, x), parts, x)

    return model, struct(HALF, batch, 224, 224, 3)


def _questions(shared: bool, batch: int) -> tuple[Callable[..., Any], jax.ShapeDtypeStruct]:
    """BERT-Base with two outputs for each token; with one layer twelve times it is ALBERT."""

    def model(v: Variables, tokens: Any) -> Any:
        (x,) = SQUAD.embed(v, tokens)
        for number in range(SQUAD.layers):
            (x,) = SQUAD.layer(v / ("layer" if shared else f"layer{number}"), x)
        return dense(v / "span", x, 2)

    return model, struct(jnp.int32, batch, LENGTH)


Build = Callable[[int], tuple[Callable[..., Any], jax.ShapeDtypeStruct]]
MODELS: tuple[tuple[str, Build], ...] = (
    ("resnet-?50", functools.partial(_images, RESNET50.parts())),
    ("swin-large", functools.partial(_images, vit.SWIN_LARGE.parts())),
    ("^(bert|roberta)-", functools.partial(_questions, False)),
    ("^albert-", functools.partial(_questions, True)),
)
