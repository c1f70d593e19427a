"""Memory of small models as the TensorFlow port's tests have it (size_speed_tests, IPUModel).

Bytes are the sum over the tiles, without gaps; of the largest tile where the row says so. With
`compile_ipu_code` off, as in these tests, the emulator compiles no code and counts none: the same
MLP trained with batches of one takes 7,142,699 bytes, and 6,548,224 of them are weights, gradients
and data.

Two things the port's compiler adds (graphcore/tensorflow@b2127bba:
tensorflow/compiler/plugin/poplar/driver/visitors/entry_visitor.cc): a variable that a program reads
and does not change is copied at its beginning, and what is fed in arrives where it is read first.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ipujax import loops
from ipujax.functional_ops import outlined_function
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from validation.models import resnet
from validation.models.layers import dense
from validation.models.variables import Shapes, Variables, shapes, struct
from validation.program import predict_program
from validation.row import Prediction, Row, SkipError

HALF = jnp.float16
CODE = ("vertex_code", "control_code", "exchange_code", "stack")
LOOP = 10  # turns of the tests' loops, and gradients that they accumulate


def predict(row: Row) -> Prediction | None:
    """Bytes on one IPU."""
    if not row.hardware.startswith("IPUModel") or not row.unit.startswith("bytes"):
        return None
    if "serialised matmul" in row.text:
        function, args = _serialised(row.text)
    elif "mlp" in row.text:
        function, args = _mlp(row.text)
    elif re.search(r"resnet-18|momentum|sgd", row.text):
        function, args = _resnet(row.text)
    else:
        return None
    memory = predict_program(function, args, row.target).memory
    code = 0
    if "compile_ipu_code false" in row.hardware.lower():
        code = sum(memory.by_category[name] for name in CODE)
    if re.search(r"max(imum)? ?tile|largest tile", row.text):
        return Prediction(bytes=memory.tile_peak_bytes.max() - code / row.target.tiles_per_ipu)
    return Prediction(bytes=float(memory.peak_bytes.sum() - code))


def _serialised(text: str) -> tuple[Callable[..., Any], list[Any]]:
    """x + concatenation of (a slice of the rows of y) @ z, by one function called again."""
    sizes = re.findall(r"\[(\d+),\s*(\d+)\]", text)
    splits = re.search(r"in (\d+) row splits", text)
    if len(sizes) != 3 or not splits:
        raise SkipError("the sizes of x, y and z, or the splits, are not said")
    x, y, z = (struct(HALF, int(rows), int(columns)) for rows, columns in sizes)
    fed_late = IPUInfeedQueue(lambda: itertools.repeat(np.broadcast_to(HALF(0), x.shape)))

    def function(y: Any, z: Any) -> Any:
        product = outlined_function(lambda rows, z: rows @ z)
        joined = jnp.concatenate([product(rows, z) for rows in jnp.split(y, int(splits[1]))])
        return loops.repeat(1, lambda joined, x: x + joined, [joined], infeed_queue=fed_late)

    return function, [y, z]


def _mlp(text: str) -> tuple[Callable[..., Any], list[Any]]:
    """Dense layers with relu and a softmax cross entropy; SGD."""
    given = re.search(r"x\[(\d+),\s*(\d+)\]", text)
    batch = re.search(r"batch (\d+)", text)
    rows = int(given[1]) if given else int(batch[1]) if batch else 2
    columns = int(given[2]) if given else 50_176
    layers = re.search(r"dense ([\d, ]+)", text)
    widths = [int(w) for w in re.findall(r"\d+", layers[1])] if layers else [32, 64, 64]

    def loss(v: Variables, x: Any, labels: Any) -> Any:
        for number, width in enumerate(widths):
            x = jax.nn.relu(dense(v / f"layer{number}", x, width))
        return optax.softmax_cross_entropy(x, labels).mean()

    data = [struct(HALF, rows, columns), struct(HALF, rows, widths[-1])]
    return _step(loss, data, optax.sgd(0.01) if "training" in text else None)


def _resnet(text: str) -> tuple[Callable[..., Any], list[Any]]:
    """The stem and two blocks; once, in a loop, or with accumulated gradients in it."""

    def loss(v: Variables, x: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy(resnet.size_test(v, x), labels).mean()

    batch = re.search(r"(?:bs|batch )(\d+)", text)
    rows = int(batch[1]) if batch else 1
    data = [struct(HALF, rows, 224, 224, 4), struct(HALF, rows, 1000)]
    if "inference" in text:
        return _step(loss, data, None)
    optimizer = optax.sgd(0.01, 0.9 if "momentum" in text else None)
    accumulate = "accumulation" in text
    return _step(loss, data, optimizer, loop="loop" in text or accumulate, accumulate=accumulate)


def _step(
    loss: Callable[..., Any],
    data: list[Any],
    optimizer: Any,
    *,
    loop: bool = False,
    accumulate: bool = False,
) -> tuple[Callable[..., Any], list[Any]]:
    variables = shapes(loss, HALF, *data)

    def of(values: Shapes, *data: Any) -> Any:
        return loss(Variables(HALF, values), *data)

    if optimizer is None:

        def infer(values: Shapes, *data: Any) -> Any:
            return of(jax.tree.map(jnp.copy, values), *data)

        return infer, [variables, *data]
    state = jax.eval_shape(optimizer.init, variables)

    def gradients(values: Any, *data: Any) -> Any:
        if not accumulate:
            return jax.grad(of)(values, *data)
        zeros = jax.tree.map(jnp.zeros_like, values)
        return loops.repeat(
            LOOP, lambda sums: jax.tree.map(jnp.add, sums, jax.grad(of)(values, *data)), [zeros]
        )

    def update(values: Any, state: Any, *data: Any) -> Any:
        changes, state = optimizer.update(gradients(values, *data), state)
        return optax.apply_updates(values, changes), state

    def train(values: Any, state: Any, *data: Any) -> Any:
        if not loop:
            return update(values, state, *data)
        return loops.repeat(LOOP, lambda v, s: update(v, s, *data), [values, state])

    return train, [variables, state, *data]
