"""The operator of functions with a user-written backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.torch.backward import WITH_BACKWARD
from ipujax.doors.torch.operators.table import operator
from ipujax.ground import FrontendError


@operator(WITH_BACKWARD, takes_call=True)
def with_backward(
    call: Call,
    forward: str,
    backward: str,
    output_count: int,
    positions: Sequence[int],
    is_once: bool,
    inputs: Sequence[Operand],
    outer_values: Sequence[Operand],
) -> Operand:
    """Computes a function whose derivative is its user-written backward pass.

    Args:
      call: the call of the operator.
      forward: the graph of the forward pass. It returns the outputs, values that other nodes read,
        and values that the backward pass reads.
      backward: the graph of the backward pass.
      output_count: the number of outputs that have gradients.
      positions: the positions of the inputs whose gradients the backward pass returns.
      is_once: whether the backward pass has no derivative.
      inputs: the inputs that may have gradients.
      outer_values: all other values that the passes read.
    """
    read_count = output_count + len(call.node.results) - 1

    def run_forward_graph(
        inputs: Operand, outer_values: Operand, key: jax.Array | None
    ) -> tuple[Operand, ...]:
        return tuple(call.graphs[forward](*inputs, *outer_values, key=key))

    @jax.custom_vjp
    def run_differentiable(
        inputs: Operand, outer_values: Operand, key: jax.Array | None
    ) -> tuple[Operand, ...]:
        return run_forward_graph(inputs, outer_values, key)[:read_count]

    def run_forward_rule(
        inputs: Operand, outer_values: Operand, key: jax.Array | None
    ) -> tuple[Operand, Operand]:
        values = run_forward_graph(inputs, outer_values, key)
        return values[:read_count], (values[read_count:], key)

    def run_backward_rule(residuals: Operand, cotangents: Operand) -> tuple[Operand, None, None]:
        values, key = residuals
        # PyTorch's gradients of complex numbers are the conjugates of JAX's.
        output_gradients = [jnp.conj(slope) for slope in cotangents[:output_count]]
        input_gradients = call.graphs[backward](*output_gradients, *values, key=key)
        if is_once:
            input_gradients = refuse_derivatives(
                _second_derivative_error(call.node.where), input_gradients
            )
        gradients = dict(zip(positions, map(jnp.conj, input_gradients), strict=True))
        return tuple(gradients.get(i) for i in range(len(inputs))), None, None

    run_differentiable.defvjp(run_forward_rule, run_backward_rule)
    values = run_differentiable(tuple(inputs), tuple(outer_values), call.inner_key)
    outputs, detached_values = list(values[:output_count]), values[output_count:]
    return (outputs, *map(jax.lax.stop_gradient, detached_values)) if detached_values else outputs


def _second_derivative_error(location: str | None) -> FrontendError:
    return FrontendError(
        "a backward pass that is marked by once_differentiable is differentiated",
        where=location,
        fix="write it with operators of PyTorch alone, without the mark",
    )


def refuse_derivatives(error: Exception | None, values: Operand) -> Operand:
    """Returns values whose differentiation raises an error, if there is one."""
    if error is None:
        return values

    @jax.custom_vjp
    def identity(value: Operand) -> Operand:
        return value

    def raise_error(*_: object) -> NoReturn:
        raise error

    identity.defvjp(raise_error, raise_error)
    return jax.tree.map(identity, values)
