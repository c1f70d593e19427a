"""The operator of functions that have a backward pass of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.errors import FrontendError
from ipujax.frontends.pytorch.backward import WITH_BACKWARD
from ipujax.frontends.pytorch.operators.table import operator


@operator(WITH_BACKWARD)
def with_backward(
    call: Call,
    forward: str,
    backward: str,
    output_count: int,
    positions: Sequence[int],
    is_once: bool,
    inputs: Sequence[Any],
    others: Sequence[Any],
) -> Any:
    """What a function gives; its derivative is what its backward pass says.

    Args:
      call: of it.
      forward: the graph of its forward pass: outputs, values that others read, and what the
        backward pass reads.
      backward: that of its backward pass.
      output_count: how many outputs have gradients.
      positions: of those inputs that the backward pass gives gradients of.
      is_once: whether the backward pass has no derivative.
      inputs: what may have gradients.
      others: what else the passes read.
    """
    seen = output_count + len(call.node.results) - 1

    def run(inputs: Any, others: Any, key: Any) -> tuple[Any, ...]:
        return tuple(call.graphs[forward](*inputs, *others, key=key))

    @jax.custom_vjp
    def function(inputs: Any, others: Any, key: Any) -> tuple[Any, ...]:
        return run(inputs, others, key)[:seen]

    def begin(inputs: Any, others: Any, key: Any) -> tuple[Any, Any]:
        values = run(inputs, others, key)
        return values[:seen], (values[seen:], key)

    def end(kept: Any, slopes: Any) -> tuple[Any, None, None]:
        values, key = kept
        # PyTorch's gradients of complex numbers are the conjugates of JAX's.
        given = [jnp.conj(slope) for slope in slopes[:output_count]]
        found = call.graphs[backward](*given, *values, key=key)
        if is_once:
            found = refuse_derivatives(_twice(call.node.where), found)
        gradients = dict(zip(positions, map(jnp.conj, found), strict=True))
        return tuple(gradients.get(i) for i in range(len(inputs))), None, None

    function.defvjp(begin, end)
    values = function(tuple(inputs), tuple(others), call.inner_key)
    outputs, escaped = list(values[:output_count]), values[output_count:]
    return (outputs, *map(jax.lax.stop_gradient, escaped)) if escaped else outputs


def _twice(where: str | None) -> FrontendError:
    return FrontendError(
        "a backward pass that is marked by once_differentiable is differentiated",
        where=where,
        fix="write it with operators of PyTorch alone, without the mark",
    )


def refuse_derivatives(error: Exception | None, values: Any) -> Any:
    """The values themselves; to differentiate them raises the error, if there is one."""
    if error is None:
        return values

    @jax.custom_vjp
    def identity(value: Any) -> Any:
        return value

    def refuse(*_: Any) -> Any:
        raise error

    identity.defvjp(refuse, refuse)
    return jax.tree.map(identity, values)
