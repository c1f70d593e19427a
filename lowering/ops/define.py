"""The definition of a primitive of ours: one call states all that JAX may ask of it.

A rule takes its primitive first, so that what several primitives share is written once, here.
JAX asks for a derivative only where an operand varies, and for a vmap only where one is mapped:
the operand of a primitive that has one always is; a primitive that has none is never asked about.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from lowering.jaxprs import Aval, ClosedJaxpr, Effect, Primitive, ad, mlir, shape_of, typed_jax
from lowering.ops.types import Array, Arrays, Dims, Results, Rule, Tangents

Operand = TypeVar("Operand")


def vmap_elementwise(primitive: Primitive, values: Arrays, dims: Dims, **params: object) -> Results:
    """Applies vmap to a primitive of one operand and a result of the same axes."""
    return primitive.bind(*values, **params), dims[0]


def define_primitive(
    name: str,
    avals: Callable[..., Any],
    run: Callable[..., Any] | None = None,
    *,
    has_several_results: bool = False,
    effects: Callable[..., set[Any]] | None = None,
    on_host: Effect | None = None,
    run_compiled: Callable[..., Any] | None = None,
    jvp: Rule | None = None,
    transpose: Rule | None = None,
    vmap: Rule = vmap_elementwise,
) -> Primitive:
    """Defines a primitive. All functions take its parameters by name.

    Args:
      name: its name in jaxprs, programs and reports; starts with `ipu_`.
      avals: maps avals of the operands to the aval of the result, or to those of several.
      run: what it does under plain `jax.jit` and in eager calls; None if another rule says that.
      has_several_results: it has several results (or none), not one.
      effects: avals of the operands -> effects.
      on_host: `run` is done by the host, on NumPy's arrays, as often as it is written and in order
        with everything else of this effect.
      run_compiled: what plain `jax.jit` does instead of `run`.
      jvp: primitive, primals, tangents -> results, their tangents.
      transpose: primitive, cotangent, operands -> the operands' cotangents.
      vmap: primitive, operands, their mapped axes -> results, their mapped axes.
    """
    primitive = Primitive(name)
    primitive.multiple_results = has_several_results
    if effects is None and on_host is None:
        primitive.def_abstract_eval(avals)
    else:

        def find_avals_and_effects(*operands: Aval, **params: Any) -> tuple[Any, set[Any]]:
            all_effects = {on_host} if effects is None else effects(*operands, **params)
            return avals(*operands, **params), all_effects

        primitive.def_effectful_abstract_eval(find_avals_and_effects)
    if on_host is not None and run is not None:
        _define_on_host(primitive, on_host, run)
    elif run is not None:
        primitive.def_impl(run)
        rule = typed_jax.lower_fun(run_compiled or run, multiple_results=has_several_results)
        typed_jax.register_lowering(primitive, rule)
    typed_jax.primitive_batchers[primitive] = functools.partial(vmap, primitive)
    if jvp is not None:
        typed_jax.primitive_jvps[primitive] = functools.partial(jvp, primitive)
    if transpose is not None:
        typed_jax.primitive_transposes[primitive] = functools.partial(transpose, primitive)
    return primitive


def _define_on_host(primitive: Primitive, effect: Effect, run: Callable[..., Any]) -> None:
    def run_eagerly(*operands: Array, **params: object) -> Any:
        return jax.tree.map(typed_jax.asarray, run(*operands, **params))

    def lower_to_callback(ctx: Any, *operands: Any, **params: object) -> Any:
        def call_host(*arrays: Any) -> tuple[Any, ...]:
            results = run(*arrays, **params)
            return tuple(results) if primitive.multiple_results else (results,)

        results, token, _ = typed_jax.emit_python_callback(
            ctx,
            call_host,
            ctx.tokens_in.get(effect),
            list(operands),
            ctx.avals_in,
            ctx.avals_out,
            has_side_effect=True,
            returns_token=True,
        )
        ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({effect: token})))
        return results

    primitive.def_impl(run_eagerly)
    typed_jax.register_lowering(primitive, lower_to_callback, cacheable=False)


def define_identity_mark(name: str) -> Primitive:
    """Defines a primitive that returns its operand; derivatives pass through it."""

    def jvp_of_mark(
        primitive: Primitive, xs: Arrays, tangents: Tangents, **params: object
    ) -> Results:
        return primitive.bind(*xs, **params), tangents[0]

    def transpose_of_mark(_: Primitive, cotangent: Array, x: Array, **params: object) -> Arrays:
        return [cotangent]

    return define_primitive(
        name, first_operand, first_operand, jvp=jvp_of_mark, transpose=transpose_of_mark
    )


def define_primitive_with_body(
    name: str,
    effects: Callable[..., set[Effect]],
    function: Callable[..., Callable[..., Arrays]],
    run: Callable[..., Arrays] | None = None,
    run_compiled: Callable[..., Arrays] | None = None,
    transpose: Rule | None = None,
) -> Primitive:
    """Defines a primitive with a closed jaxpr, `body`, whose results it has.

    Args:
      name: the name of the primitive.
      effects: as for `define_primitive`.
      function: parameters -> a function of the operands that JAX can differentiate and vmap.
      run: as for `define_primitive`; that function if it is None.
      run_compiled: as for `define_primitive`.
      transpose: as for `define_primitive`.
    """

    def body_avals(*_: Aval, body: ClosedJaxpr, **params: object) -> list[Aval]:
        return body.out_avals

    def jvp_of_body(_: Primitive, primals: Arrays, tangents: Tangents, **params: object) -> Results:
        filled = tuple(typed_jax.instantiate_zeros(t) for t in tangents)
        return typed_jax.jvp(function(**params), tuple(primals), filled)

    def vmap_of_body(_: Primitive, values: Arrays, dims: Dims, **params: object) -> Results:
        results = jax.vmap(function(**params), in_axes=tuple(dims))(*values)
        return results, [0] * len(results)

    run = run or (lambda *operands, **params: function(**params)(*operands))
    return define_primitive(
        name,
        body_avals,
        run,
        has_several_results=True,
        effects=effects,
        run_compiled=run_compiled,
        jvp=jvp_of_body,
        transpose=transpose,
        vmap=vmap_of_body,
    )


def first_operand(x: Operand, **_: object) -> Operand:
    """Returns the operand, as the aval or the value of a primitive of one operand."""
    return x


# --- rules ------------------------------------------------------------------------------------


def jvp_of_constant(primitive: Primitive, xs: Arrays, _: Tangents, **params: object) -> Results:
    """Returns the derivative of a primitive that does not change with its operands."""
    results = primitive.bind(*xs, **params)
    return results, jax.tree.map(zero_tangent, results)


def zero_tangent(result: Array) -> ad.Zero:
    """Returns the tangent of a result that does not change."""
    return ad.Zero(jax.typeof(result).to_tangent_aval())


def jvp_of_linear(
    primitive: Primitive, xs: Arrays, tangents: Tangents, **params: object
) -> Results:
    """Returns the derivative of a primitive that is linear in its one operand."""
    return primitive.bind(*xs, **params), primitive.bind(*tangents, **params)


def transpose_of_self_transposed(
    primitive: Primitive, cotangent: Array, _: Array, **params: object
) -> Arrays:
    """Returns the transpose of a primitive that is its own transpose."""
    return [primitive.bind(cotangent, **params)]


def vmap_along_leading_axes(
    primitive: Primitive, values: Arrays, dims: Dims, **params: object
) -> Results:
    """Applies vmap to a primitive whose arrays may have any common leading axes."""
    return primitive.bind(*move_examples_to_front(values, dims), **params), 0


def move_examples_to_front(values: Arrays, dims: Dims) -> list[Array]:
    """Returns the operands of a vmap, each with the examples along its first axis."""
    pairs = list(zip(values, dims, strict=True))
    count = next(shape_of(x)[dim] for x, dim in pairs if dim is not None)
    return [typed_jax.bdim_at_front(x, dim, count) for x, dim in pairs]


def move_mapped_axes_to_front(values: Arrays, dims: Dims) -> list[Array]:
    """Returns the operands of a vmap, the mapped ones with examples along the first axis."""
    pairs = zip(values, dims, strict=True)
    return [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs]
