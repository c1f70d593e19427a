"""ONNX models through `from_onnx` and `compile`, against onnxruntime on as many processors."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np

from benchmarks.measure import Row, row, seconds

THREADS = 2
LAYERS, TOKENS, WORDS, WIDTH, HEADS, BATCH = 4, 128, 512, 256, 4, 8
PIXELS = 64
NODES, LONGEST = 1000, 2.0
OPSET = 17
MISSING = "left out: the rows of ONNX; to have them, `pip install 'ipujax[onnx]'` and `onnxruntime`"


def rows() -> list[Row]:
    """Inference of a transformer and of a residual network, and what conversion takes."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxruntime")):
        print(MISSING, file=sys.stderr)
        return []
    random = np.random.default_rng(0)
    words = random.integers(WORDS, size=(BATCH, TOKENS))
    images = random.standard_normal((BATCH, 3, PIXELS, PIXELS)).astype(np.float32)
    return [
        _inference("a 4-layer BERT", 1.0, _bert(random), words),
        _inference("ResNet-18", 1.3, _resnet(random), images),
        _conversion("a chain", _chain(random), np.ones((8, 8), np.float32)),
        _conversion("a BERT", _bert(random, NODES // NODES_OF_A_LAYER), words),
    ]


def _inference(what: str, reach: float, model: Any, x: Any) -> Row:
    """A call with the batch from the host, and the outputs on the host again."""
    import onnxruntime

    import ipujax as ipu

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    # Its threads would go on spinning after each call, and take a processor from what is next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    theirs = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    converted = ipu.frontends.from_onnx(model)
    ours = ipu.compile(lambda variables, x: converted.apply(variables, x)[0])

    def call() -> Any:
        return [np.asarray(output) for output in ours(converted.variables, x)]

    def baseline() -> Any:
        return theirs.run(None, {"x": x})

    np.testing.assert_allclose(call()[0], baseline()[0], rtol=1e-3, atol=1e-3)
    title = f"onnx: inference of {what} / onnxruntime, 2 threads"
    return row(title, reach, call, baseline, pairs=15)


def _conversion(what: str, model: Any, x: Any) -> Row:
    """From the model to a lowered program, where JAX has seen its operators before."""
    import ipujax as ipu

    def lowered() -> None:
        converted = ipu.frontends.from_onnx(model)
        ipu.compile(lambda variables, x: converted.apply(variables, x)[0]).lower(
            converted.variables, x
        )

    taken = seconds(lowered)
    title = f"onnx: conversion and lowering of {what} of {len(model.graph.node)} nodes / 2 s"
    return Row(title, taken / LONGEST, 1.0, f"{taken:.2f} s / {LONGEST:.0f} s")


class _Builder:
    """A graph in the making: each call adds a node and gives the name of its result."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        import onnx

        name = f"{operator}_{len(self._nodes)}"
        node = onnx.helper.make_node(operator, inputs, [name], name=name, **attributes)
        self._nodes.append(node)
        return name

    def tensor(self, values: Any) -> str:
        """An initializer."""
        import onnx

        name = f"tensor_{len(self._tensors)}"
        self._tensors.append(onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def weights(self, *shape: int) -> str:
        """Small random numbers; the outputs come first unless there are no more than two axes."""
        inputs = np.prod(shape[1:] if len(shape) > 2 else shape[:1])
        values = self._random.standard_normal(shape) / np.sqrt(inputs)
        return self.tensor(values.astype(np.float32))

    def filled(self, size: int, value: float) -> str:
        return self.tensor(np.full(size, value, np.float32))

    def number(self, value: float) -> str:
        return self.tensor(np.float32(value))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self("MatMul", x, self.weights(inputs, outputs))
        return self("Add", product, self.filled(outputs, 0.1))

    def model(
        self, kind: type, shape: tuple[int, ...], output: str, result: tuple[int, ...]
    ) -> Any:
        """The model whose input `x` and whose output have these shapes, checked."""
        import onnx

        info = onnx.helper.make_tensor_value_info
        given = info("x", onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
        given_back = info(output, onnx.TensorProto.FLOAT, result)
        graph = onnx.helper.make_graph(self._nodes, "graph", [given], [given_back], self._tensors)
        opset = onnx.helper.make_opsetid("", OPSET)
        made = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
        onnx.checker.check_model(made)
        return made


NODES_OF_A_LAYER = 33


def _bert(random: np.random.Generator, layers: int = LAYERS) -> Any:
    """An encoder as PyTorch writes it, whose head predicts words."""
    add = _Builder(random)
    x = add("Add", add("Gather", add.weights(WORDS, WIDTH), "x"), add.weights(TOKENS, WIDTH))
    for _ in range(layers):
        x = _normalized(add, add("Add", x, _attention(add, x)))
        up = add.linear(x, WIDTH, 4 * WIDTH)
        erf = add("Erf", add("Div", up, add.number(np.sqrt(2))))
        half = add("Mul", up, add("Add", erf, add.number(1)))
        gelu = add("Mul", half, add.number(0.5))
        x = _normalized(add, add("Add", x, add.linear(gelu, 4 * WIDTH, WIDTH)))
    scores = add.linear(x, WIDTH, WORDS)
    return add.model(np.int64, (BATCH, TOKENS), scores, (BATCH, TOKENS, WORDS))


def _attention(add: _Builder, x: str) -> str:
    size = WIDTH // HEADS
    split, joined = add.tensor([0, 0, HEADS, size]), add.tensor([0, 0, WIDTH])
    q, k, v = (add("Reshape", add.linear(x, WIDTH, WIDTH), split) for _ in range(3))
    q, v = (add("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
    scores = add("MatMul", q, add("Transpose", k, perm=[0, 2, 3, 1]))
    shares = add("Softmax", add("Div", scores, add.number(np.sqrt(size))), axis=-1)
    heads = add("Transpose", add("MatMul", shares, v), perm=[0, 2, 1, 3])
    return add.linear(add("Reshape", heads, joined), WIDTH, WIDTH)


def _normalized(add: _Builder, x: str) -> str:
    scale, offset = add.filled(WIDTH, 1), add.filled(WIDTH, 0)
    return add("LayerNormalization", x, scale, offset, axis=-1, epsilon=1e-5)


def _resnet(random: np.random.Generator) -> Any:
    """ResNet-18."""
    add = _Builder(random)
    x = add("Relu", _convolved(add, "x", 3, 64, kernel=7, stride=2))
    x = add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        x = _block(add, x, inputs, outputs, stride)
        x = _block(add, x, outputs, outputs, 1)
        inputs = outputs
    pooled = add("Flatten", add("GlobalAveragePool", x))
    scores = add("Gemm", pooled, add.weights(512, 10), add.filled(10, 0.1))
    return add.model(np.float32, (BATCH, 3, PIXELS, PIXELS), scores, (BATCH, 10))


def _block(add: _Builder, x: str, inputs: int, outputs: int, stride: int) -> str:
    inner = add("Relu", _convolved(add, x, inputs, outputs, kernel=3, stride=stride))
    inner = _convolved(add, inner, outputs, outputs, kernel=3, stride=1)
    same = inputs == outputs and stride == 1
    shortcut = x if same else _convolved(add, x, inputs, outputs, kernel=1, stride=stride)
    return add("Relu", add("Add", inner, shortcut))


def _convolved(add: _Builder, x: str, inputs: int, outputs: int, kernel: int, stride: int) -> str:
    weights = add.weights(outputs, inputs, kernel, kernel)
    pads, strides = [kernel // 2] * 4, [stride] * 2
    result = add("Conv", x, weights, kernel_shape=[kernel] * 2, pads=pads, strides=strides)
    scale, offset, mean, var = (add.filled(outputs, value) for value in (1, 0.1, 0, 1))
    return add("BatchNormalization", result, scale, offset, mean, var)


def _chain(random: np.random.Generator) -> Any:
    """Nodes one after the other."""
    add = _Builder(random)
    x = "x"
    for number in range(NODES):
        operator = ("Relu", "Add", "Tanh", "Mul")[number % 4]
        x = add(operator, x) if number % 2 == 0 else add(operator, x, add.weights(8))
    return add.model(np.float32, (8, 8), x, (8, 8))
