"""What the compiler's tests share: small programs, and texts of what passes hand on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lowering import Options, ir, lower, marks
from lowering.ground import HOST
from lowering.jaxprs import dtype_name, jaxpr, shape_of
from lowering.passes.place import PlacedBody

X = jax.ShapeDtypeStruct((2, 3), jnp.float32)
W = jax.ShapeDtypeStruct((3, 3), jnp.float32)
V = jax.ShapeDtypeStruct((3,), jnp.float32)
S = jax.ShapeDtypeStruct((), jnp.float32)
N = jax.ShapeDtypeStruct((), jnp.int32)


@dataclass(frozen=True)
class Queue:
    """All that the compiler knows of a queue, an infeed or an outfeed."""

    name: str
    prefetch_depth: int | None = None
    keeps_last: bool = False

    def pull(self, count: int | None) -> Any:
        raise NotImplementedError

    def push(self, structure: Any, leaves: Any, count: int | None) -> None:
        raise NotImplementedError


def shard(number: int) -> contextlib.AbstractContextManager[Any]:
    return jax.named_scope(marks.write_mark(marks.SHARD, str(number)))


def outside(name: str = "host") -> contextlib.AbstractContextManager[Any]:
    return jax.named_scope(marks.write_mark(marks.OUTSIDE, name))


def trace(fn: Callable[..., Any], *args: Any) -> Any:
    return jax.make_jaxpr(fn)(*args)


def lowered(fn: Callable[..., Any], *args: Any, ipus: int = 2, **options: Any) -> ir.Program:
    return lower(trace(fn, *args), Options(num_ipus=ipus, **options))


def text_of(fn: Callable[..., Any], *args: Any, ipus: int = 2, **options: Any) -> str:
    return ir.to_text(lowered(fn, *args, ipus=ipus, **options))


def kernels(program: ir.Program) -> list[ir.Execute]:
    return [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Execute)]


# --- texts ----------------------------------------------------------------------------------------


def jaxpr_text(closed: Any) -> str:
    """One equation per line: primitive, results, name stack; bodies below theirs."""
    return "\n".join(_lines(closed.jaxpr, "")) + "\n"


def placed_text(placed: PlacedBody) -> str:
    """One equation per line after its home; the bodies of what is split below it."""
    return "\n".join(_placed_lines(placed, "")) + "\n"


def _lines(body: Any, indent: str) -> Iterator[str]:
    if not body.eqns:
        yield f"{indent}(no equations)"
    for eqn in body.eqns:
        yield f"{indent}{_line(eqn)}"
        for inner in jaxpr.sub_jaxprs(eqn):
            yield from _lines(inner, indent + "  ")


def _placed_lines(placed: PlacedBody, indent: str) -> Iterator[str]:
    for index, eqn in enumerate(placed.jaxpr.jaxpr.eqns):
        home = placed.homes[index]
        place = "split" if index in placed.bodies else "host" if home == HOST else f"ipu {home}"
        yield f"{indent}{place:6} {_line(eqn)}"
        for body in placed.bodies.get(index, ()):
            yield f"{indent}  body"
            yield from _placed_lines(body, indent + "  ")


def _line(eqn: Any) -> str:
    results = ", ".join(_type(var.aval) for var in eqn.outvars) or "-"
    stack = jaxpr.name_stack(eqn)
    return f"{eqn.primitive.name} -> {results}{f'  [{stack}]' if stack else ''}"


def _type(aval: Any) -> str:
    return f"{dtype_name(aval)}[{','.join(map(str, shape_of(aval)))}]"
