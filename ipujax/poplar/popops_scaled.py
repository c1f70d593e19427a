"""Elementwise operations with arguments of their own: scaled additions, fill, cast, iota."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ipujax.poplar.devices import Target
from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check, index_error, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import (
    add_elementwise,
    read_title,
    split_at_program,
    title_of,
)
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line


@check.guard
def scaledAddTo(graph: Graph, *arguments: Any) -> None:
    """Adds `A += scaleB * B`, or `A = scaleA * A + scaleB * B`, to a program.

    Args:
      graph: the graph.
      *arguments: `A, B, scaleB, prog`, or `A, scaleA, B, scaleB, prog`, and a name. A scale is a
        number or a tensor of one element; A and B have one shape.
    """
    _add_scaled(graph, "scaledAdd", arguments, sign=1)


@check.guard
def scaledSubtractFrom(graph: Graph, *arguments: Any) -> None:
    """Adds `A -= scaleB * B`, or `A = scaleA * A - scaleB * B`, to a program; see `scaledAddTo`."""
    _add_scaled(graph, "scaledSubtract", arguments, sign=-1)


def _add_scaled(graph: Graph, name: str, arguments: tuple[Any, ...], *, sign: int) -> None:
    operands, prog, trailing_arguments = split_at_program(name, arguments, (3, 4))
    has_scale_a = len(operands) == 4
    a, scale_a, b, scale_b = operands if has_scale_a else (operands[0], 1, *operands[1:])
    for tensor in (a, b):
        check.require_instance(tensor, Tensor, "A and B")
    if a.shape() != b.shape():
        raise index_error(f"{name} of {a} and {b}: the shapes differ", where=user_line())
    if any(isinstance(scale, Tensor) and scale.numElements() != 1 for scale in (scale_a, scale_b)):
        raise type_error(f"a scale of {name} has more than one element", where=user_line())

    def compute(a: Any, scale_a: Any, b: Any, scale_b: Any) -> Any:
        scaled_a = jnp.reshape(scale_a, ()) * a if has_scale_a else a
        return scaled_a + sign * jnp.reshape(scale_b, ()) * b

    cycles = None
    if jnp.issubdtype(a.type.dtype, jnp.floating):
        cycles = scaled_add_cycles(
            graph.getTarget(),
            a.type,
            b.type,
            is_constant=not isinstance(scale_b, Tensor),
            is_axpby=has_scale_a,
            sign=sign,
        )
    title = read_title(name, trailing_arguments)
    add_elementwise(
        graph, prog, title, compute, [a, scale_a, b, scale_b], in_place=True, cycles=cycles
    )


def scaled_add_cycles(
    target: Target,
    type_a: Type,
    type_b: Type,
    *,
    is_constant: bool = False,
    is_axpby: bool = False,
    sign: int = 1,
) -> Callable[[int], float]:
    """Returns a function, elements -> tile cycles: PopLibs' estimate for `ScaledAddSupervisor`.

    The supervisor takes 21 cycles, 12 and 7 (13 if elements remain) besides the launch, and more
    for a scale that is a tensor; a worker 15, then 6 and 3 for each vector after its first (4 of
    mixed types), and 3; one of them looks after what remains. (PopLibs, popops:
    getScaledArithmeticSupervisorCycleEstimate)
    """
    width = target.getVectorWidth(type_a)
    vector_cycles = 3 if type_a == type_b else 4
    num_workers = target.getNumWorkerContexts()

    def cycles(elements: int) -> float:
        vectors, remainder = divmod(elements, width)
        supervisor = 21 + 12 + (13 if remainder else 7)
        if not is_constant:
            supervisor += 6 + 12 * (is_axpby and sign > 0) + 7 * (sign < 0)
        all_have, some_have = divmod(vectors, num_workers)
        workers: list[int] = []
        for number in range(num_workers):
            count = all_have + (number < some_have)
            last_cycles = 1 + (8 if remainder else 0) if number == some_have else 0
            workers.append(15 + (6 + vector_cycles * (count - 1) if count else 0) + 3 + last_cycles)
        return supervisor + num_workers * max(workers)

    return cycles


def _worker_cycles(graph: Graph, type: Type, start: int) -> Callable[[int], float]:
    """Returns a function, elements -> tile cycles, for workers that store a vector a cycle."""
    target = graph.getTarget()
    num_workers, width = target.getNumWorkerContexts(), target.getVectorWidth(type)
    return lambda elements: num_workers * (start + math.ceil(elements / num_workers / width))


@check.guard
def fill(graph: Graph, t: Tensor, prog: Sequence, fillValue: float, debugContext: str = "") -> None:
    """Adds a program that sets all elements of a tensor to a number."""
    check.require_instance(t, Tensor, "t")
    start = 26 if t.type.size == 2 else 23
    cycles = _worker_cycles(graph, t.type, start)

    dtype = t.type.dtype
    add_elementwise(
        graph, prog, title_of("fill", debugContext),
        lambda value: jnp.asarray(value, dtype), [fillValue], out=t, cycles=cycles,
    )  # fmt: skip


@check.guard
def zero(graph: Graph, t: Tensor, prog: Sequence, debugContext: str = "") -> None:
    """Adds a program that sets all elements of a tensor to zero."""
    fill(graph, t, prog, 0, debugContext)


@check.guard
def cast(
    graph: Graph,
    src: Tensor,
    dst: Type | Tensor,
    prog: Sequence | None = None,
    debugContext: str = "",
) -> Any:
    """Converts a tensor to another type.

    Args:
      graph: the graph.
      src: the tensor.
      dst: the type of a new tensor, which is returned, or the tensor to write.
      prog: the sequence that the program is added to; without one, for a tensor to write, the
        program is returned.
      debugContext: a name.
    """
    out = dst if isinstance(dst, Tensor) else None
    type = dst.type if isinstance(dst, Tensor) else require_type(dst, "dst")
    sequence = Sequence() if prog is None else prog
    output = add_elementwise(
        graph, sequence, title_of("cast", debugContext),
        lambda x: x.astype(type.dtype), [src], out=out,
    )  # fmt: skip
    if prog is None and out is None:
        raise check.type_error("cast to a type needs prog", "give the Sequence to add it to")
    return sequence if prog is None else output


@check.guard
def castWithOutput(
    graph: Graph, src: Tensor, dst: Tensor, prog: Sequence, debugContext: str = ""
) -> None:
    """Adds a program that converts a tensor into another one, of the same shape."""
    cast(graph, src, check.require_instance(dst, Tensor, "dst"), prog, debugContext)


@check.guard
def iota(
    graph: Graph, t: Tensor, startInteger: int, prog: Sequence, debugContext: str = ""
) -> None:
    """Adds a program that writes startInteger, startInteger + 1, ... to a 1-d tensor."""
    check.require_instance(t, Tensor, "t")
    start = check.require_integer(startInteger, "startInteger")
    if t.rank() != 1:
        raise index_error(f"iota of {t}, which is not 1-d", where=user_line())
    values = start + jnp.arange(t.numElements(), dtype=t.type.dtype)
    name = title_of("iota", debugContext)
    cycles = _worker_cycles(graph, t.type, 16)
    add_elementwise(graph, prog, name, lambda _: values, [start], out=t, cycles=cycles)
