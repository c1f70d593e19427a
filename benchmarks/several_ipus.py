"""Functions on a device of four IPUs and as many CPU devices, against `jax.jit` of the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.measure import Row, print_rows, row, rows_of_process


def rows() -> list[Row]:
    """Measured on four CPU devices."""
    return rows_of_process("benchmarks.several_ipus", devices=4)


def _measure() -> list[Row]:
    import jax
    import jax.numpy as jnp

    import ipujax as ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    x, weights = jnp.ones((64, 256)), [jnp.ones((256, 256)) / 256] * 4

    def layers(x: Any, weights: Any, ipus: int) -> Any:
        for number, w in enumerate(weights):
            with ipu.scopes.ipu_shard(number % ipus):
                x = jnp.tanh(x @ w)
        return x

    def repeated(x: Any, weights: Any) -> Any:
        return jax.lax.scan(lambda c, _: (layers(c, weights, 2), None), x, None, length=10)[0]

    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "x + 1": (lambda x: x + 1, (x,)),
        "four layers, no marks": (lambda x, w: layers(x, w, 1), (x, weights)),
        "four layers on two IPUs": (lambda x, w: layers(x, w, 2), (x, weights)),
        "four layers on four IPUs": (lambda x, w: layers(x, w, 4), (x, weights)),
        "a scan over two IPUs": (repeated, (x, weights)),
        "replicas that differ": (lambda x: x + ipu.replication_ops.replication_index(), (x,)),
    }

    def called(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
        return lambda: jax.block_until_ready(fn(*arguments))

    return [
        row(
            f"{name}, device of four IPUs / jax.jit",
            8.0 if name.startswith("replicas") else 2.0,
            called(ipu.compile(fn), arguments),
            called(jax.jit(fn), arguments),
            pairs=15,
            times=30,
        )
        for name, (fn, arguments) in functions.items()
    ]


if __name__ == "__main__":
    print_rows(_measure())
