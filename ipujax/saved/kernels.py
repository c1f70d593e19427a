"""The kernels of a Program as StableHLO, by `jax.export`, and back as kernels of a Program."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
from jax import export

from ipujax.errors import ExecutableError, MissingExtraError
from ipujax.saved.values import Json, decode_aval, encode_aval
from lowering import (
    count_operations,
    ir,
    jaxpr,
    ops,
    shape_of,
)


def need_extra() -> None:
    """Looks for what `jax.export` needs to put functions into bytes.

    Raises:
      MissingExtraError: (an `ImportError`) it is not installed.
    """
    try:
        importlib.import_module("flatbuffers")
    except ImportError as error:
        raise MissingExtraError(
            "saved executables need the package flatbuffers, which is not installed",
            fix="pip install 'ipujax[export]'",
        ) from error


def write(kernel: ir.Kernel, replicas: int, name: str) -> tuple[Json, bytes]:
    """What is known of a kernel, and its StableHLO for all replicas at once.

    Args:
      kernel: of a Program.
      replicas: copies of the graph.
      name: the program's.

    Raises:
      ExecutableError: code that only this machine, or this version of JAX, has.
    """
    closed = kernel.jaxpr
    lead = (replicas,) if replicas > 1 else ()

    def function(*operands: jax.Array) -> list[jax.Array]:
        return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

    whole = function
    if replicas > 1:
        whole = jax.vmap(function, axis_name=ops.REPLICAS, axis_size=replicas)
    structs = [
        jax.ShapeDtypeStruct((*lead, *shape_of(aval)), aval.dtype, weak_type=aval.weak_type)
        for aval in closed.in_avals
    ]
    try:
        code = bytes(export.export(jax.jit(whole))(*structs).serialize())
    except (ValueError, TypeError, NotImplementedError, KeyError) as error:
        # Of a dtype that it has no number for, `jax.export` says nothing but the name.
        cause = f"arrays of {error}" if isinstance(error, KeyError) else error
        raise ExecutableError(
            f"`{name}` has code that JAX cannot put into a file: {cause}",
            where=kernel.origin,
            fix="run the program in the process that compiles it",
        ) from error
    known = {
        "in": [encode_aval(aval) for aval in closed.in_avals],
        "out": [encode_aval(aval) for aval in closed.out_avals],
        "operations": count_operations(closed.jaxpr),
    }
    return known, code


def read(known: Json, code: bytes | memoryview, replicas: int) -> jaxpr.ClosedJaxpr:
    """The kernel that `write` wrote, for one replica, as every kernel of a Program."""
    exported = export.deserialize(bytearray(code))
    call: Callable[..., Any] = exported.call
    kernel = ops.Exported(
        function=call,
        avals=tuple(map(decode_aval, known["out"])),
        replicas=replicas,
        operations=known["operations"],
    )
    avals = [decode_aval(aval) for aval in known["in"]]
    axis = (ops.REPLICAS, replicas) if replicas > 1 else None
    return jaxpr.trace_flat(lambda *operands: ops.call_exported(kernel, operands), avals, axis)
