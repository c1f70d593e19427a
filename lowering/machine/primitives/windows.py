"""Windows and running reductions: pooling, its gradients, cumulative sums.

Windows follow poplibs' popnn pooling: every result folds the elements of its window, which are
brought first. Running reductions have no vertex in the original; they take the logarithmic scan
that XLA makes of them. Both are defaults: their loops' rates are those of the plain operations.
"""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Any

from lowering.machine.cost import Cost, Operation, Phase
from lowering.machine.primitives.rates import BINARY, COMPOSED, UNARY, rate
from lowering.machine.primitives.reductions import STRIDED
from lowering.machine.primitives.stages import Pass, doubling, passes
from lowering.machine.primitives.vertices import (
    FREE,
    Rule,
    camel,
    is_float,
    on_worker,
    spread,
    supervisor,
    vertex,
    width,
)
from lowering.machine.target import Target

_FOLDED_BY = {
    "cumlogsumexp": ("max", "exp", "add", "log"),
    "cummax": ("max",),
    "cummin": ("min",),
    "cumprod": ("mul",),
    "cumsum": ("add",),
}


def _product(extents: Any) -> int:
    return math.prod(int(extent) for extent in extents)


def window(op: Operation, target: Target) -> Cost:
    """Folds a window for every result; gradients visit each window twice."""
    given = op.operands[0]
    over = given if "scatter" in op.name else op.result
    window_size = _product(op.param("window_dimensions", (1,)))
    strides = _product(op.param("window_strides", (1,)))
    lying = spread(over, target)
    if not lying.elements:
        return FREE
    visits = 1 if op.name.startswith("reduce") else 2
    outputs = on_worker(math.ceil(lying.most_elements / width(given.dtype)), target)
    start, each = STRIDED
    worker = start + outputs * (each + visits * (window_size - 1))
    received = lying.most_elements * min(window_size, strides) * given.element_bytes
    name = camel(op.name)
    return Cost(
        phases=(Phase(name, supervisor(worker, target), float(received)),),
        temporary_bytes=float(received),
        vertices=vertex(f"popnn::{name}", given.dtype, lying.used),
        flops=float(over.elements * window_size * visits) if is_float(given.dtype) else 0.0,
        source="default",
    )


def running(op: Operation, target: Target) -> Cost:
    """A logarithmic scan: a pass for each power of two below the axis' extent."""
    shape, axis = op.operands[0], int(op.param("axis", 0))
    if not shape.elements or not shape.dims:
        return FREE
    names = [part for name in _FOLDED_BY[op.name] for part in COMPOSED.get(name, (name,))]
    loops = [rate(UNARY.get(name) or BINARY[name], shape.dtype)[0] for name in names]
    cycles = sum(loop.cycles / (loop.elements or width(shape.dtype)) for loop in loops)
    row, stride = shape.dims[axis], math.prod(shape.dims[axis + 1 :])
    each = Pass(camel(op.name), 29, cycles)
    cost = passes(shape, row, stride, doubling(row), each, target)
    flops = float(shape.elements * len(names) * len(cost.phases))
    return dc.replace(cost, flops=flops if is_float(shape.dtype) else 0.0, source="default")


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "reduce_window",
            "reduce_window_max",
            "reduce_window_min",
            "reduce_window_sum",
            "select_and_gather_add",
            "select_and_scatter",
            "select_and_scatter_add",
        ),
        window,
    ),
    **dict.fromkeys(_FOLDED_BY, running),
}
