"""What lowering costs, against XLA's compilation; and how it grows with the program."""

from __future__ import annotations

import statistics
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.measure import Row, row, seconds
from lowering import Options, lower

LAYERS, WIDTH, HEADS, LENGTH = 24, 64, 4, 16
CHAIN_LENGTH = 4000


def rows() -> list[Row]:
    """An unrolled transformer training step, and chains of 10 000 and 100 000 equations."""
    return [_transformer(), *_tracing_and_lowering(), _growth()]


def transformer_step(parameters: list[dict[str, Any]], tokens: Any) -> Any:
    """Loss and gradients of a small unrolled transformer over four IPUs."""

    def block(p: dict[str, Any], x: Any) -> Any:
        def norm(y: Any) -> Any:
            mean = y.mean(-1, keepdims=True)
            return (y - mean) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)

        q, k, v = (norm(x) @ p[name] for name in ("q", "k", "v"))
        q, k, v = (t.reshape(LENGTH, HEADS, -1).swapaxes(0, 1) for t in (q, k, v))
        weights = jax.nn.softmax(q @ k.swapaxes(1, 2) / jnp.sqrt(q.shape[-1]))
        x = x + (weights @ v).swapaxes(0, 1).reshape(LENGTH, WIDTH) @ p["o"]
        return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]

    def loss(parameters: list[dict[str, Any]]) -> Any:
        x = tokens
        for number, p in enumerate(parameters):
            with jax.named_scope(f"ipu_shard[{number * 4 // len(parameters)}]"):
                x = block(p, x)
        return jnp.mean(x**2)

    return jax.value_and_grad(loss)(parameters)


def transformer_arguments(layers: int = LAYERS) -> tuple[list[dict[str, Any]], Any]:
    """Parameters and one input."""
    shapes = {name: (WIDTH, WIDTH) for name in ("q", "k", "v", "o")}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    parameters = [{n: jnp.ones(s) / 64 for n, s in shapes.items()} for _ in range(layers)]
    return parameters, jnp.ones((LENGTH, WIDTH))


def _transformer() -> Row:
    arguments = transformer_arguments()
    closed = jax.jit(transformer_step).trace(*arguments).jaxpr
    options = Options(num_ipus=4)
    mine, theirs = [], []
    for _ in range(3):
        jax.clear_caches()
        theirs.append(seconds(lambda: jax.jit(transformer_step).lower(*arguments).compile()))
        mine.append(seconds(lambda: lower(closed, options)))
    ratio = statistics.median(m / t for m, t in zip(mine, theirs, strict=True))
    note = f"{statistics.median(mine):.2f} s / {statistics.median(theirs):.2f} s"
    return Row("lowering a 24-layer step over 4 IPUs / XLA's compilation", ratio, 0.2, note)


def _tracing_and_lowering() -> list[Row]:
    """`ipu.compile(f).lower` of a step and of a chain, against `jax.jit(f).lower`."""
    import ipujax as ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()

    def chain(x: Any) -> Any:
        for number in range(CHAIN_LENGTH // 2):
            with ipu.scopes.ipu_shard(number * 8 // CHAIN_LENGTH):
                x = jnp.sin(x) * 0.5
        return x

    programs = {
        "a chain of 4 000 equations": (chain, (jnp.ones(4),)),
        "a 24-layer step": (transformer_step, transformer_arguments()),
    }
    found: list[Row] = []
    for name, (function, arguments) in programs.items():

        def ours(function: Any = function, arguments: Any = arguments) -> Any:
            jax.clear_caches()
            return ipu.compile(function).lower(*arguments)

        def baseline(function: Any = function, arguments: Any = arguments) -> Any:
            jax.clear_caches()
            return jax.jit(function).lower(*arguments)

        what = f"tracing and lowering {name} / jit(...).lower"
        found.append(row(what, 1.5, ours, baseline, pairs=5))
    ipu.config.reset_ipu_configuration()
    return found


def _growth() -> Row:
    def chain(equations: int) -> Any:
        def function(x: Any) -> Any:
            for number in range(equations // 2):
                with jax.named_scope(f"ipu_shard[{number * 8 // equations}]"):
                    x = jnp.sin(x) * 0.5
            return x

        return jax.make_jaxpr(function)(jnp.ones(4))

    small, large = chain(10_000), chain(100_000)
    options = Options(num_ipus=4)
    pairs = [
        (seconds(lambda: lower(large, options)), seconds(lambda: lower(small, options), 3))
        for _ in range(5)
    ]
    ratio = statistics.median(one / other for one, other in pairs)
    one, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row("lowering 100 000 / 10 000 equations", ratio, 12.0, f"{one:.2f} s / {other:.3f} s")
