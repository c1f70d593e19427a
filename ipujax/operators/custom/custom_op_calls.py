"""Calls a user's compiled function, differentiable by gradient functions of the same library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ipujax.ground import CustomOpError, PyTree
from ipujax.operators.custom import run_custom_op as run_custom_op  # tells JAX how to run them
from ipujax.operators.custom import shared_library
from ipujax.operators.custom.custom_op_arguments import Function, Result
from lowering import ops


def call_user_function(
    function: Function, inputs: Sequence[jax.Array], *, on_host: bool
) -> list[jax.Array]:
    """Calls a user's compiled function and returns its results.

    Args:
      function: what to call.
      inputs: its operands.
      on_host: whether this is work of the host, not of an IPU.

    Raises:
      CustomOpError: the library does not hold what is called.
    """
    with jax.named_scope(function.name):
        if not function.results:
            return _bind_function(function, "", function.results, inputs, on_host)
        return list(_build_function_with_gradient(function, on_host)(*inputs))


def _bind_function(
    function: Function,
    suffix: str,
    results: tuple[Result, ...],
    operands: Sequence[PyTree],
    on_host: bool,
) -> list[jax.Array]:
    """Binds one function of the library: the one that was asked for, or a gradient of it."""
    op = ops.UserOp(
        name=function.name + suffix,
        target=shared_library.register_user_function(
            function.path, function.symbol + suffix, function.call_line
        ),
        attributes=function.gradient_attributes if suffix else function.attributes,
        results=results,
        where=function.call_line,
    )
    primitive = ops.user_callback_p if on_host else ops.user_op_p
    return primitive.bind(*operands, op=op)


def _build_function_with_gradient(
    function: Function, on_host: bool
) -> Callable[..., tuple[jax.Array, ...]]:
    bound = functools.partial(_bind_function, function, on_host=on_host)

    @jax.custom_vjp
    def call_forward(*inputs: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(bound("", function.results, inputs))

    def call_and_save(*inputs: jax.Array) -> PyTree:
        outputs = call_forward(*inputs)
        return outputs, (inputs, outputs)

    def call_gradient(saved: PyTree, cotangents: Sequence[PyTree]) -> tuple[PyTree, ...]:
        inputs, outputs = saved
        pairs = zip(cotangents, outputs, strict=True)
        operands = [*(_cotangent_or_zeros(*pair) for pair in pairs), *outputs, *inputs]
        gradient_types = [
            (x.shape, x.dtype.name) for x in (inputs[i] for i in function.differentiable)
        ]
        try:
            if not function.separate:
                computed = bound("_grad", tuple(gradient_types), operands) if gradient_types else []
            else:
                pairs = zip(function.differentiable, gradient_types, strict=True)
                computed = [bound(f"_grad_{i}", (result,), operands)[0] for i, result in pairs]
        except CustomOpError as error:
            error.add_note(_describe_missing_gradient(function))
            raise
        gradients = dict(zip(function.differentiable, computed, strict=True))
        return tuple(_none_for_integer_operand(gradients.get(i), x) for i, x in enumerate(inputs))

    call_forward.defvjp(call_and_save, call_gradient)
    return call_forward


def _cotangent_or_zeros(cotangent: PyTree, output: jax.Array) -> PyTree:
    """Returns the cotangent that a gradient function gets for an output; zeros without one."""
    return cotangent if cotangent.dtype == output.dtype else jnp.zeros_like(output)


def _none_for_integer_operand(gradient: PyTree, operand: jax.Array) -> PyTree:
    """Returns a gradient in the form that JAX takes: None for an integer operand."""
    return gradient if jnp.issubdtype(operand.dtype, jnp.inexact) else None


def _describe_missing_gradient(function: Function) -> str:
    symbol = f"{function.symbol}_grad"
    names = [f"{symbol}_{i}" for i in function.differentiable] if function.separate else [symbol]
    return (
        f"`{function.name}` was differentiated, which takes {', '.join(map(repr, names))} in its "
        "library; jax.lax.stop_gradient on its inputs, or inputs_with_gradients=[], say that it "
        "has no gradient"
    )
