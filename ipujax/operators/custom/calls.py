"""A call of a user's compiled function, differentiable by others of the same library."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.errors import CustomOpError
from ipujax.operators.custom import library
from ipujax.operators.custom import run as run  # tells JAX how to run the primitives
from ipujax.operators.custom.arguments import Function, Result
from lowering import ops


def call(function: Function, inputs: Sequence[jax.Array], *, on_host: bool) -> list[jax.Array]:
    """The function's results.

    Args:
      function: what to call.
      inputs: its operands.
      on_host: whether this is work of the host, not of an IPU.

    Raises:
      CustomOpError: the library does not hold what is called.
    """
    with jax.named_scope(function.name):
        if not function.results:
            return _bound(function, "", function.results, inputs, on_host)
        return list(_differentiable(function, on_host)(*inputs))


def _bound(
    function: Function,
    suffix: str,
    results: tuple[Result, ...],
    operands: Sequence[Any],
    on_host: bool,
) -> list[jax.Array]:
    """One of the library's functions: the one that was asked for, or a gradient of it."""
    op = ops.UserOp(
        name=function.name + suffix,
        target=library.target(function.path, function.symbol + suffix, function.where),
        attributes=function.gradient_attributes if suffix else function.attributes,
        results=results,
        where=function.where,
    )
    primitive = ops.user_callback_p if on_host else ops.user_op_p
    return primitive.bind(*operands, op=op)


def _differentiable(function: Function, on_host: bool) -> Any:
    bound = functools.partial(_bound, function, on_host=on_host)

    @jax.custom_vjp
    def forward(*inputs: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(bound("", function.results, inputs))

    def kept(*inputs: jax.Array) -> Any:
        outputs = forward(*inputs)
        return outputs, (inputs, outputs)

    def backward(saved: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        inputs, outputs = saved
        pairs = zip(cotangents, outputs, strict=True)
        operands = [*(_gradient_of(*pair) for pair in pairs), *outputs, *inputs]
        wanted = [(x.shape, x.dtype.name) for x in (inputs[i] for i in function.differentiable)]
        try:
            if not function.separate:
                computed = bound("_grad", tuple(wanted), operands) if wanted else []
            else:
                pairs = zip(function.differentiable, wanted, strict=True)
                computed = [bound(f"_grad_{i}", (result,), operands)[0] for i, result in pairs]
        except CustomOpError as error:
            error.add_note(_note(function))
            raise
        gradients = dict(zip(function.differentiable, computed, strict=True))
        return tuple(_or_none(gradients.get(i), x) for i, x in enumerate(inputs))

    forward.defvjp(kept, backward)
    return forward


def _gradient_of(cotangent: Any, output: jax.Array) -> Any:
    """What a gradient function is given for an output; zeros for one that has no gradient."""
    return cotangent if cotangent.dtype == output.dtype else jnp.zeros_like(output)


def _or_none(gradient: Any, of: jax.Array) -> Any:
    """A gradient as JAX takes it: None where there is none."""
    return gradient if jnp.issubdtype(of.dtype, jnp.inexact) else None


def _note(function: Function) -> str:
    one = f"{function.symbol}_grad"
    names = [f"{one}_{i}" for i in function.differentiable] if function.separate else [one]
    return (
        f"`{function.name}` was differentiated, which takes {', '.join(map(repr, names))} in its "
        "library; jax.lax.stop_gradient on its inputs, or inputs_with_gradients=[], say that it "
        "has no gradient"
    )
