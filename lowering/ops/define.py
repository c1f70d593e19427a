"""How a primitive of ours is defined: one call that says all that JAX may ask of it.

A rule takes its primitive first, so that what several primitives share is written once, here.
JAX asks for a derivative only where an operand varies, and for a vmap only where one is mapped:
the operand of a primitive that has one always is; a primitive that has none is never asked about.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lowering.avals import Aval, shape_of
from lowering.jaxpr import ClosedJaxpr, Effect, Primitive, ad, batching, mlir
from lowering.ops.types import Array, Arrays, Dims, Results, Rule, Tangents


def elementwise(primitive: Primitive, values: Arrays, dims: Dims, **params: object) -> Results:
    """The vmap of a primitive of one operand and a result of the same axes."""
    return primitive.bind(*values, **params), dims[0]


def define(
    name: str,
    avals: Callable[..., Any],
    run: Callable[..., Any] | None = None,
    *,
    several: bool = False,
    effects: Callable[..., set[Any]] | None = None,
    on_host: Effect | None = None,
    compiled: Callable[..., Any] | None = None,
    jvp: Rule | None = None,
    transpose: Rule | None = None,
    vmap: Rule = elementwise,
) -> Primitive:
    """A new primitive. All functions take its parameters by name.

    Args:
      name: in jaxprs, programs and reports; starts with `ipu_`.
      avals: of the operands -> of the result, or of several.
      run: what it does where the compiler does not know better: plain `jax.jit`, and eager calls.
        None if somebody else says so.
      several: it has several results (or none), not one.
      effects: avals of the operands -> effects.
      on_host: `run` is done by the host, on NumPy's arrays, as often as it is written and in order
        with everything else of this effect.
      compiled: what plain `jax.jit` does instead of `run`.
      jvp: primitive, primals, tangents -> results, their tangents.
      transpose: primitive, cotangent, operands -> the operands' cotangents.
      vmap: primitive, operands, their mapped axes -> results, their mapped axes.
    """
    primitive = Primitive(name)
    primitive.multiple_results = several
    if effects is None and on_host is None:
        primitive.def_abstract_eval(avals)
    else:
        effects = effects or (lambda *_, **params: {on_host})
        primitive.def_effectful_abstract_eval(
            lambda *operands, **params: (avals(*operands, **params), effects(*operands, **params))
        )
    if on_host is not None and run is not None:
        _define_on_host(primitive, on_host, run)
    elif run is not None:
        primitive.def_impl(run)
        rule = mlir.lower_fun(compiled or run, multiple_results=several)
        mlir.register_lowering(primitive, rule)
    batching.primitive_batchers[primitive] = functools.partial(vmap, primitive)
    if jvp is not None:
        ad.primitive_jvps[primitive] = functools.partial(jvp, primitive)
    if transpose is not None:
        ad.primitive_transposes[primitive] = functools.partial(transpose, primitive)
    return primitive


def _define_on_host(primitive: Primitive, effect: Effect, run: Callable[..., Any]) -> None:
    def eager(*operands: Array, **params: object) -> Any:
        return jax.tree.map(jnp.asarray, run(*operands, **params))

    def rule(ctx: Any, *operands: Any, **params: object) -> Any:
        def host(*arrays: Any) -> tuple[Any, ...]:
            results = run(*arrays, **params)
            return tuple(results) if primitive.multiple_results else (results,)

        results, token, _ = mlir.emit_python_callback(
            ctx,
            host,
            ctx.tokens_in.get(effect),
            list(operands),
            ctx.avals_in,
            ctx.avals_out,
            has_side_effect=True,
            returns_token=True,
        )
        ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({effect: token})))
        return results

    primitive.def_impl(eager)
    mlir.register_lowering(primitive, rule, cacheable=False)


def define_mark(name: str) -> Primitive:
    """A primitive that gives its operand; it is not there for derivatives."""

    def jvp(primitive: Primitive, xs: Arrays, tangents: Tangents, **params: object) -> Results:
        return primitive.bind(*xs, **params), tangents[0]

    return define(
        name, first, first, jvp=jvp, transpose=lambda _, cotangent, x, **params: [cotangent]
    )


def define_body(
    name: str,
    effects: Callable[..., set[Effect]],
    function: Callable[..., Callable[..., Arrays]],
    run: Callable[..., Arrays] | None = None,
    compiled: Callable[..., Arrays] | None = None,
) -> Primitive:
    """A primitive with a closed jaxpr, `body`, whose results it has.

    Args:
      name: of the primitive.
      effects: as for `define`.
      function: parameters -> a function of the operands that JAX can differentiate and vmap.
      run: as for `define`; that function if it is None.
      compiled: as for `define`.
    """

    def avals(*_: Aval, body: ClosedJaxpr, **params: object) -> list[Aval]:
        return body.out_avals

    def jvp(_: Primitive, primals: Arrays, tangents: Tangents, **params: object) -> Results:
        filled = tuple(ad.instantiate_zeros(t) for t in tangents)
        return jax.jvp(function(**params), tuple(primals), filled)

    def vmap(_: Primitive, values: Arrays, dims: Dims, **params: object) -> Results:
        results = jax.vmap(function(**params), in_axes=tuple(dims))(*values)
        return results, [0] * len(results)

    run = run or (lambda *operands, **params: function(**params)(*operands))
    return define(
        name, avals, run, several=True, effects=effects, compiled=compiled, jvp=jvp, vmap=vmap
    )


def first(x: Aval, **_: object) -> Aval:
    """The operand: as the avals, or the work, of a primitive of one operand."""
    return x


# --- rules ------------------------------------------------------------------------------------


def constant(primitive: Primitive, xs: Arrays, _: Tangents, **params: object) -> Results:
    """The derivative of what does not change with its operands."""
    results = primitive.bind(*xs, **params)
    return results, jax.tree.map(no_tangent, results)


def no_tangent(result: Array) -> ad.Zero:
    """The tangent of a result that does not change."""
    return ad.Zero(jax.typeof(result).to_tangent_aval())


def linear(primitive: Primitive, xs: Arrays, tangents: Tangents, **params: object) -> Results:
    """The derivative of what is linear in its one operand."""
    return primitive.bind(*xs, **params), primitive.bind(*tangents, **params)


def itself(primitive: Primitive, cotangent: Array, _: Array, **params: object) -> Arrays:
    """The transpose of what is its own."""
    return [primitive.bind(cotangent, **params)]


def leading(primitive: Primitive, values: Arrays, dims: Dims, **params: object) -> Results:
    """The vmap of a primitive that takes and gives arrays with any leading axes, all the same."""
    return primitive.bind(*at_front(values, dims), **params), 0


def at_front(values: Arrays, dims: Dims) -> list[Array]:
    """The operands of a vmap, each with the examples along its first axis."""
    pairs = list(zip(values, dims, strict=True))
    count = next(shape_of(x)[dim] for x, dim in pairs if dim is not None)
    return [batching.bdim_at_front(x, dim, count) for x, dim in pairs]


def mapped_to_front(values: Arrays, dims: Dims) -> list[Array]:
    """The operands of a vmap; those that are mapped have the examples along their first axis."""
    pairs = zip(values, dims, strict=True)
    return [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs]
