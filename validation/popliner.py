"""Parts of the memory of three profiles that popliner's tests have (graphcore/popliner@4811e536).

EfficientNet-EdgeTPU-L in inference: 224x224 images (its activations say so), taken to be four of
them in fp16. BERT-Large in inference: squad_large_128_inf.json, one sequence of 128. Tiny BERT in
training: PyTorch's configs_squad.yml demo_tiny_128 on one IPU, three layers of width 64, sums of 16
gradients in fp16, AdamW with its state in fp32. A row that names no
model means the first; "one layer" is of BERT-Large.

The profiles of BERT were compiled with `POPART_POPLINER_OUTLINER_REGEX`, which keeps layers from
sharing code: their control code is that of operations that share none. Their exchange code adds up
over the layers, but a later layer has a third of the first one's (1.0 of 3.1 MB), as what equal
exchanges have in common is there once; that of "one layer" is of a later one. Vertex state is
modelled with sharing all the same. Query, key and value are one product in both.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ipujax import loops
from ipujax.scopes import partials_type
from lowering.machine import ModelOptions, model
from lowering.machine.profile import Memory
from lowering.machine.target import Target
from validation.models import bert, efficientnet
from validation.models.variables import Variables, shapes, struct
from validation.program import as_popart, lowered, predict_program
from validation.row import Prediction, Row, SkipError

HALF, I32 = jnp.float16, jnp.int32
ACCUMULATED = 16  # gradients of an update
TINY = bert.Bert(layers=3, width=64, heads=8, vocabulary=30_522, dropout=0.1, fused=True)
CODE = ("vertex code", "vertex state", "exchange code", "control code")


def predict(row: Row) -> Prediction | None:
    """Bytes of one part, on all tiles together, or of everything on the largest tile."""
    if row.kind != "compiler" or not row.unit.startswith("bytes"):
        return None
    layers = re.search(r"layers (\d+)-(\d+)", row.text) or re.search(r"(\d+) (layers)", row.text)
    if "tiny" in row.text:
        memory = _tiny(row.target)
    elif "one layer" in row.text:
        memory = _large(row.target, 1, False)
        if "exchange code" in row.text:
            two = _large(row.target, 2, False)
            return Prediction(bytes=float(_part(two, row.text) - _part(memory, row.text)))
    elif "bert" in row.text:
        if not layers:
            count, first = 24, True
        elif layers[2] == "layers":
            count, first = int(layers[1]), True
        else:
            count, first = int(layers[2]) - int(layers[1]) + 1, layers[1] == "0"
        memory = _large(row.target, count, first)
    else:
        memory = _edge(row.target)
    return Prediction(bytes=float(_part(memory, row.text)))


def _part(memory: Memory, text: str) -> int:
    if "max tile" in text:
        return int(memory.tile_peak_bytes.max())
    if "total" in text:
        return int(memory.peak_bytes.sum())
    for name in CODE:
        if name in text:
            return memory.by_category[name.replace(" ", "_")]
    if "variables" in text:
        code = sum(memory.by_category[name.replace(" ", "_")] for name in CODE)
        return int(memory.peak_bytes.sum()) - code
    raise SkipError("no part of the memory is named")


@functools.cache
def _edge(target: Target) -> Memory:
    images = struct(HALF, 4, 224, 224, 3)
    network = efficientnet.EDGE_L
    variables = shapes(network.logits, HALF, images)

    def run(values: Any, images: Any) -> Any:
        return network.logits(Variables(HALF, values), images)

    return predict_program(as_popart(run), [variables, images], target).memory


@functools.cache
def _large(target: Target, layers: int, embedded: bool) -> Memory:
    sizes = dc.replace(bert.LARGE, layers=layers, vocabulary=30_522, fused=True)
    given = struct(I32, 1, 128) if embedded else struct(HALF, 1, 128, sizes.width)

    def network(v: Variables, given: Any) -> Any:
        if embedded:
            return sizes.encoder(v, given)
        values = given, jnp.ones((1, 1, 1, sizes.length), jnp.int16)
        for number in range(layers):
            values = sizes.layer(v / f"layer{number}", *values)
        return values[0]

    variables = shapes(network, HALF, given)

    def run(values: Any, given: Any) -> Any:
        return network(Variables(HALF, values), given)

    return _with_layers_apart(as_popart(run), [variables, given], target)


@functools.cache
def _tiny(target: Target) -> Memory:
    tokens, place = struct(I32, 1, 128), struct(I32, 1)

    def loss(v: Variables, tokens: Any, start: Any, end: Any) -> Any:
        return TINY.squad_loss(v, TINY.encoder(v, tokens), None, start, end)

    variables = shapes(loss, HALF, tokens, place, place)
    optimizer = optax.adamw(1e-3)
    state = jax.eval_shape(lambda values: optimizer.init(_as_floats(values)), variables)
    gradient = jax.grad(as_popart(lambda p, *data: loss(Variables(HALF, p), *data)))

    def train(values: Any, state: Any, *data: Any) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, values)
        sums = loops.repeat(
            ACCUMULATED, lambda sums: jax.tree.map(jnp.add, sums, gradient(values, *data)), [zeros]
        )
        changes, state = optimizer.update(_as_floats(sums), state, _as_floats(values))
        return jax.tree.map(lambda v, c: v + c.astype(HALF), values, changes), state

    return _with_layers_apart(train, [variables, state, tokens, place, place], target)


def _as_floats(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)


def _with_layers_apart(function: Callable[..., Any], args: Sequence[Any], target: Target) -> Memory:
    """The memory of a program with half partials whose operations share no control code.

    Of exchanges, those have code of their own that send variables (`kernels/code.py`).
    """

    def run(*given: Any) -> Any:
        with partials_type(HALF):
            return function(*given)

    program = lowered(run, args)
    shared = model(program, ModelOptions(target=target)).memory
    apart = model(program, ModelOptions(target=target, outlines=False)).memory
    own = {name: apart.tile_categories[name] for name in ("control_code", "exchange_code")}
    more = sum((own[name] - shared.tile_categories[name] for name in own), np.zeros(1, np.int64))
    return dc.replace(
        shared,
        tile_peak_bytes=shared.tile_peak_bytes + more,
        tile_categories={**shared.tile_categories, **own},
        peak_bytes=shared.peak_bytes + more.sum(axis=1),
    )
