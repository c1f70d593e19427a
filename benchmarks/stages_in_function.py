"""A marked function as a pipeline (`value_and_grad`), against the same step in plain JAX."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Row, print_rows, row, rows_of_process

STAGES, MICRO_BATCHES, LEARNING_RATE = 4, 32, 0.1


def rows() -> list[Row]:
    """Measured on one CPU device, and on eight: four of them, or four meshes of two."""
    module = "benchmarks.stages_in_function"
    several = rows_of_process(module, devices=8)
    return [*rows_of_process(module, devices=1), *several, *_memory_rows()]


def _measure() -> list[Row]:
    import jax

    import ipujax as ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES
    config.configure_ipu_system()
    if len(jax.devices()) == 1:
        return [_one_device_row(), _lowering_row()]
    return [_spread_row(), _dispatch_row()]


# --- a perceptron of four stages ------------------------------------------------------------------


def _perceptron(width: int, depth: int, rows: int) -> tuple[Any, Any, Any]:
    """Returns the loss of a marked perceptron, its parameters by stage, and a batch."""
    import jax
    import jax.numpy as jnp

    import ipujax as ipu

    keys = iter(jax.random.split(jax.random.key(0), STAGES * depth + 1))
    parameters = [
        [
            {"w": jax.random.normal(next(keys), (width, width)) / width**0.5, "b": jnp.zeros(width)}
            for _ in range(depth)
        ]
        for _ in range(STAGES)
    ]
    batch = jax.random.normal(next(keys), (rows * MICRO_BATCHES, width))

    def loss_fn(parameters: Any, x: Any) -> Any:
        for number, layers in enumerate(parameters):
            with ipu.scopes.pipeline_stage(number):
                x = _apply_layers(layers, x)
        with ipu.scopes.pipeline_stage(STAGES - 1):
            return jnp.mean(x**2)

    return loss_fn, parameters, batch


def _apply_layers(layers: Any, x: Any) -> Any:
    import jax.numpy as jnp

    for layer in layers:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x


def _compiled_step(loss_fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    import jax

    import ipujax as ipu

    grad_fn = ipu.pipelining_ops.value_and_grad(loss_fn, micro_batches=MICRO_BATCHES)

    def step(parameters: Any, batch: Any) -> Any:
        loss, gradients = grad_fn(parameters, batch)
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, gradients), loss

    return ipu.compile(step, donate_argnums=0, **options)


def _repeated(step: Callable[..., Any], parameters: Any, batch: Any) -> Callable[[], Any]:
    """Returns a call of a step that keeps its parameters."""
    import jax

    state = [jax.tree.map(lambda p: p.copy(), parameters)]

    def call() -> None:
        state[0], loss = step(state[0], batch)
        jax.block_until_ready((state[0], loss))

    return call


def _spread_row() -> Row:
    loss_fn, parameters, batch = _perceptron(256, 2, 16)
    ours = _compiled_step(loss_fn, engine="replay", gather=False)
    return row(
        "4 stages x 32 micro-batches on 4 CPU devices, replay / jit and device_put by hand",
        0.8,
        _repeated(ours, parameters, batch),
        _written_by_hand(parameters, batch),
        pairs=9,
    )


def _one_device_row() -> Row:
    import jax
    import jax.numpy as jnp

    loss_fn, parameters, batch = _perceptron(256, 2, 16)

    def scanned(parameters: Any, batch: Any) -> Any:
        def accumulate(total: Any, x: Any) -> Any:
            loss, gradients = jax.value_and_grad(loss_fn)(parameters, x)
            return jax.tree.map(jnp.add, total, (loss, gradients)), None

        zeros = (jnp.float32(0), jax.tree.map(jnp.zeros_like, parameters))
        parts = batch.reshape(MICRO_BATCHES, -1, batch.shape[-1])
        (loss, gradients), _ = jax.lax.scan(accumulate, zeros, parts)
        rate = LEARNING_RATE / MICRO_BATCHES
        new = jax.tree.map(lambda p, g: p - rate * g, parameters, gradients)
        return new, loss / MICRO_BATCHES

    return row(
        "4 stages x 32 micro-batches on one CPU device, engine=auto / jit of a scan",
        0.9,
        _repeated(_compiled_step(loss_fn), parameters, batch),
        _repeated(jax.jit(scanned, donate_argnums=0), parameters, batch),
        pairs=15,
    )


def _dispatch_row() -> Row:
    """The CPU time of the thread that dispatches, per task, of stages with 20 arrays."""
    import jax

    import ipujax as ipu

    loss_fn, parameters, batch = _perceptron(16, 10, 2)
    meshes = ipu.meshes(STAGES, {"data": 2})
    step = _compiled_step(loss_fn, meshes=meshes)
    state, taken = parameters, list[float]()
    for _ in range(12):
        start = time.thread_time()
        state, loss = step(state, batch)
        taken.append(time.thread_time() - start)
        jax.block_until_ready((state, loss))
    each = statistics.median(taken[2:]) / (2 * STAGES * MICRO_BATCHES)
    what = "host time per task, 4 stages x 32 micro-batches on meshes of 2 devices / 20 us"
    return Row(what, each / 20e-6, 1.0, f"{each * 1e6:.0f} us")


def _written_by_hand(parameters: Any, batch: Any) -> Callable[[], Any]:
    """A 1F1B step of jitted stage functions, with `device_put` between four devices."""
    import jax
    import jax.numpy as jnp

    import ipujax as ipu

    devices = jax.devices()[:STAGES]
    state = [jax.device_put(p, d) for p, d in zip(parameters, devices, strict=True)]
    parts = batch.reshape(MICRO_BATCHES, -1, batch.shape[-1])
    inputs = [jax.device_put(part, devices[0]) for part in parts]

    @jax.jit
    def forward(layers: Any, x: Any) -> Any:
        return jax.vjp(_apply_layers, layers, x)

    @jax.jit
    def last(layers: Any, x: Any) -> Any:
        return jax.vjp(lambda layers, x: jnp.mean(_apply_layers(layers, x) ** 2), layers, x)

    def add_gradients(total: Any, back: Any, cotangent: Any) -> Any:
        gradients, cotangent = back(cotangent)
        return jax.tree.map(jnp.add, total, gradients), cotangent

    backward = jax.jit(add_gradients, donate_argnums=0)
    zeros = jax.jit(lambda layers: jax.tree.map(jnp.zeros_like, layers))
    rate = LEARNING_RATE / MICRO_BATCHES
    update = jax.jit(lambda p, g: jax.tree.map(lambda p, g: p - rate * g, p, g), donate_argnums=0)
    schedule = ipu.schedules.one_f_one_b(STAGES, MICRO_BATCHES)
    tasks = list(itertools.chain.from_iterable(schedule.ticks))
    one = jax.device_put(jnp.float32(1), devices[-1])

    def call() -> None:
        totals = [zeros(layers) for layers in state]
        backs: dict[tuple[int, int], Any] = {}
        moving: dict[tuple[str, int, int], Any] = {}
        losses: list[Any] = []
        for task in tasks:
            number, micro_batch = task.stage, task.micro_batch
            if task.phase.value == "F":
                x = inputs[micro_batch] if number == 0 else moving.pop(("x", number, micro_batch))
                function = last if number == STAGES - 1 else forward
                y, backs[number, micro_batch] = function(state[number], x)
                if number == STAGES - 1:
                    losses.append(y)
                else:
                    key = ("x", number + 1, micro_batch)
                    moving[key] = jax.device_put(y, devices[number + 1])
            elif task.phase.value == "B":
                is_last = number == STAGES - 1
                cotangent = one if is_last else moving.pop(("g", number, micro_batch))
                back = backs.pop((number, micro_batch))
                totals[number], cotangent = backward(totals[number], back, cotangent)
                if number:
                    key = ("g", number - 1, micro_batch)
                    moving[key] = jax.device_put(cotangent, devices[number - 1])
        state[:] = [update(p, g) for p, g in zip(state, totals, strict=True)]
        jax.block_until_ready((state, losses))

    return call


# --- a model of 2 GB ------------------------------------------------------------------------------


def _memory_rows() -> list[Row]:
    kinds = {
        "pipeline": ("in 4 stages", "jit", "jit of a scan"),
        "streamed": ("by a streamed pipeline, fused,", "jit", "jit of a scan"),
        "replayed": ("by a streamed pipeline, replayed,", "jit", "jit of a scan"),
        "plain": ("of a whole batch on 4 IPUs, replayed", "plain_jit", "jit"),
    }
    peaks = {kind: _peak_of_process(kind) for kind in (*kinds, "jit", "plain_jit")}
    return [
        Row(
            f"2 GB of parameters, one update {text} on one CPU device, peak / {baseline_text}",
            peaks[kind] / peaks[baseline],
            1.1,
            f"{peaks[kind] / 2**30:.2f} / {peaks[baseline] / 2**30:.2f} GiB",
        )
        for kind, (text, baseline, baseline_text) in kinds.items()
    ]


def _peak_of_process(kind: str) -> int:
    """Returns the bytes that a process of its own needs at most."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.update_memory", kind]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)


# --- a deep transformer ---------------------------------------------------------------------------

LAYERS, WIDTH, HEADS = 48, 64, 4


def _lowering_row() -> Row:
    import jax

    import ipujax as ipu

    parameters, tokens = _transformer_parameters(), jax.ShapeDtypeStruct((32, 16), "int32")
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 16
    config.configure_ipu_system()

    def ours() -> None:
        grad_fn = ipu.pipelining_ops.value_and_grad(
            lambda p, tokens: _transformer_loss(p, tokens, stages=16), micro_batches=32
        )
        ipu.compile(lambda p, tokens: _updated(p, grad_fn(p, tokens))).lower(parameters, tokens)

    def plain() -> None:
        grad_fn = jax.value_and_grad(lambda p, tokens: _transformer_loss(p, tokens, stages=1))
        jax.jit(lambda p, tokens: _updated(p, grad_fn(p, tokens))).lower(parameters, tokens)

    what = "trace and lower a 48-layer GPT in 16 stages / jit(...).lower of the plain step"
    return row(what, 1.5, ours, plain, pairs=3)


def _updated(parameters: Any, results: Any) -> Any:
    import jax

    loss, gradients = results
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, gradients), loss


def _transformer_parameters() -> Any:
    import jax

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, "float32")

    layer = {
        "qkv": array(WIDTH, 3 * WIDTH),
        "out": array(WIDTH, WIDTH),
        "up": array(WIDTH, 4 * WIDTH),
        "down": array(4 * WIDTH, WIDTH),
    }
    return {"embed": array(256, WIDTH), "layers": [layer] * LAYERS}


def _transformer_loss(parameters: Any, tokens: Any, stages: int) -> Any:
    import jax
    import jax.numpy as jnp

    import ipujax as ipu

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def block(p: Any, x: Any) -> Any:
        q, k, v = jnp.split(norm(x) @ p["qkv"], 3, axis=-1)
        q, k, v = (a.reshape(*a.shape[:-1], HEADS, -1) for a in (q, k, v))
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / WIDTH**0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["out"]
        return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]

    with ipu.scopes.pipeline_stage(0):
        x = parameters["embed"][tokens]
    for number, layer in enumerate(parameters["layers"]):
        with ipu.scopes.pipeline_stage(number * stages // LAYERS):
            x = block(layer, x)
    with ipu.scopes.pipeline_stage(stages - 1):
        logits = norm(x) @ parameters["embed"].T
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], -1)
        return -chosen.mean()


if __name__ == "__main__":
    print_rows(_measure())
