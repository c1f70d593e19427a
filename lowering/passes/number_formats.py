"""The emulation of float16 as the IPU computes it, rounding and adding as options ask.

Every operation that computes a float16 is computed in float32 (exact, next to float16) and rounded
by `lowering.ops.float16_rounding`. Operations that only move data, and all other types, stay as
they are; so do reductions by a function of the user's own (`lax.reduce`, but not with `lax.add`
from zero).
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Hashable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering import marks
from lowering.ground import Options
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    body_of_call,
    dtype_name,
    map_sub_jaxprs,
    name_stack,
    parameters_key,
    sub_jaxprs,
    trace_flat,
    typed_jax,
    use_configuration_of,
)
from lowering.ops import (
    Float16Format,
    TaskSpec,
    accumulate_in_float16,
    accumulate_in_float32,
    axis_of_replicas,
    is_control_flow,
    round_to_float16,
)

_HALF = np.dtype(np.float16)
_PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})

# Computed with their operands in float32 and the same parameters.
_WIDENED = frozenset({
    "acos", "acosh", "add", "add_any", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e",
    "bessel_i1e", "cbrt", "cos", "cosh", "cumlogsumexp", "cumprod", "cumsum", "digamma", "div",
    "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "igamma", "igamma_grad_a", "igammac",
    "integer_pow", "lgamma", "log", "log1p", "logistic", "mul", "polygamma", "pow", "psum",
    "psum_invariant", "random_gamma_grad", "reduce_prod", "reduce_scatter", "reduce_sum",
    "reduce_window_sum", "regularized_incomplete_beta", "rem", "rsqrt", "select_and_scatter_add",
    "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh", "zeta",
})  # fmt: skip

# Scatters hold a function of elements of the operands' type; these functions make it anew.
_SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter-add": lax.scatter_add,
    "scatter-mul": lax.scatter_mul,
    "scatter-sub": lax.scatter_sub,
}


@dc.dataclass(frozen=True, slots=True)
class _FormatRequest:
    """The number format that is asked of an operation.

    Attributes:
      format: the treatment of results that float16 does not hold.
      partials: the type of partial results, if a scope names one.
      by_product: else, the type for some primitives.
    """

    format: Float16Format
    partials: str | None = None
    by_product: tuple[tuple[str, str], ...] = ()

    def request_of_equation(self, eqn: JaxprEqn) -> _FormatRequest:
        """Returns the request for an equation inside."""
        eqn_marks = marks.read_marks(name_stack(eqn))
        if eqn_marks.outside is not None:
            return _FormatRequest(Float16Format())  # the host is no IPU
        rounding, partials = eqn_marks.stochastic_rounding, eqn_marks.partials_type
        format = self.format
        if rounding is not None:
            format = dc.replace(format, stochastic=rounding)
        task = eqn.params.get("spec")
        partials_of_stage = task.partials if isinstance(task, TaskSpec) else ()
        return _FormatRequest(
            format, partials or self.partials, (*self.by_product, *partials_of_stage)
        )

    def dtype_of_partials(self, product: str) -> str | None:
        """Returns the type of partial results of a primitive; None leaves it to XLA."""
        return self.partials or dict(self.by_product).get(product)


def number_formats(closed: ClosedJaxpr, options: Options, replicas: int) -> ClosedJaxpr:
    """Rewrites every operation that computes a float16, as options and scopes ask.

    Before: derivatives are taken, and collectives resolved.
    After:  nothing computes a float16 but conversions, and reductions by functions of the user;
            where rounding is stochastic it draws (see `lowering.ops.draws`). The same jaxpr if
            nothing is asked.
    """
    format = Float16Format(
        limits=options.float16_limits,
        nan=options.nan_on_overflow,
        stochastic=options.stochastic_rounding,
    )
    return _Formats(
        axis_of_replicas(replicas), EquationFinder(_computes_float16)
    ).rewrite_shared_body(closed, _FormatRequest(format, by_product=options.partials))


@dc.dataclass(slots=True)
class _Formats:
    """A rewriter of bodies.

    Attributes:
      axis: the axis of the replicas, if there are several.
      halves: tests whether a jaxpr has a float16 anywhere inside.
      bodies: the bodies that have been rewritten.
      emulations: the emulations of equations, by all that they depend on.
    """

    axis: tuple[str, int] | None
    halves: EquationFinder
    bodies: dict[tuple[int, _FormatRequest], ClosedJaxpr] = dc.field(
        default_factory=dict[tuple[int, _FormatRequest], ClosedJaxpr]
    )
    emulations: dict[Hashable, ClosedJaxpr] = dc.field(default_factory=dict[Hashable, ClosedJaxpr])

    def rewrite_shared_body(self, closed: ClosedJaxpr, request: _FormatRequest) -> ClosedJaxpr:
        """Rewrites a body; a shared one is rewritten once for each request."""
        if not self.halves(closed.jaxpr):
            return closed
        key = (id(closed.jaxpr), request)
        if key not in self.bodies:
            self.bodies[key] = self.rewrite_float16_operations(closed, request)
        return self.bodies[key]

    def rewrite_float16_operations(
        self, closed: ClosedJaxpr, request: _FormatRequest
    ) -> ClosedJaxpr:
        rewriter, changed = EquationRewriter(closed.jaxpr), False
        for eqn in closed.jaxpr.eqns:
            if not (_computes_float16(eqn) or self.halves.occurs_inside(eqn)):
                rewriter.keep_equation(eqn)
                continue
            eqn_request = request.request_of_equation(eqn)
            if is_control_flow(eqn) or body_of_call(eqn) is not None:
                new = map_sub_jaxprs(
                    eqn, lambda body, wanted=eqn_request: self.rewrite_shared_body(body, wanted)
                )
                pairs = zip(sub_jaxprs(new), sub_jaxprs(eqn), strict=True)
                is_unchanged = all(new_body is old_body for new_body, old_body in pairs)
                changed |= not is_unchanged
                rewriter.keep_equation(eqn if is_unchanged else new)
            elif _needs_rewriting(eqn, eqn_request):
                changed = True
                rewriter.replace_by_jaxpr(eqn, self.emulation_of(eqn, eqn_request))
            else:
                rewriter.keep_equation(eqn)
        return rewriter.build_rewritten_jaxpr(closed.consts) if changed else closed

    def emulation_of(self, eqn: JaxprEqn, request: _FormatRequest) -> ClosedJaxpr:
        """Returns the emulation of an equation; equal ones share one unless it draws."""
        avals = tuple(atom.aval for atom in eqn.invars)
        key = eqn.primitive, eqn.ctx, avals, parameters_key(eqn), request
        emulation = self.emulations.get(key)
        if emulation is None:
            with use_configuration_of(eqn):
                emulation = trace_flat(_build_emulation_of(eqn, request), avals, self.axis)
            if not request.format.stochastic:
                self.emulations[key] = emulation
        return emulation


def _computes_float16(eqn: JaxprEqn) -> bool:
    return any(_is_float16(atom.aval) for atom in (*eqn.invars, *eqn.outvars))


def _needs_rewriting(eqn: JaxprEqn, request: _FormatRequest) -> bool:
    name, format = eqn.primitive.name, request.format
    makes_half = any(_is_float16(var.aval) for var in eqn.outvars)
    if name in _PRODUCTS:
        takes_half = all(_is_float16(atom.aval) for atom in eqn.invars)
        return makes_half and (
            format.changes_results or (takes_half and request.dtype_of_partials(name) is not None)
        )
    if name == "convert_element_type":
        (source,), (target,) = eqn.invars, eqn.outvars
        if _is_float16(source.aval):
            return format.limits and dtype_name(target.aval) == "int32"
        return makes_half and format.changes_results
    return makes_half and format.changes_results and (name in _WIDENED or name in _SCATTERS)


def _build_emulation_of(eqn: JaxprEqn, request: _FormatRequest) -> Any:
    """Returns an equation as a function that rounds as the request asks."""
    name = eqn.primitive.name

    def run_in_float32_and_round(*operands: Any) -> list[Any]:
        if name == "convert_element_type" and _is_float16(typed_jax.asarray(operands[0])):
            return [_convert_to_int32(operands[0])]
        if name in _PRODUCTS and request.dtype_of_partials(name) == "float16":
            wide = accumulate_in_float16(eqn, operands, request.format)
        else:
            wide = _evaluate_in_float32(eqn, operands)
        return [
            round_to_float16(result, name, operands, request.format)
            if _is_float16(var.aval)
            else result
            for result, var in zip(wide, eqn.outvars, strict=True)
        ]

    return run_in_float32_and_round


def _evaluate_in_float32(eqn: JaxprEqn, operands: Any) -> list[Any]:
    """Evaluates an equation in float32."""
    name, params = eqn.primitive.name, eqn.params
    if name == "convert_element_type":
        return [operands[0].astype(jnp.float32)]
    if name in _PRODUCTS:
        return [accumulate_in_float32(eqn, operands)]
    widened = [x.astype(jnp.float32) if _is_float16(typed_jax.asarray(x)) else x for x in operands]
    if name in _SCATTERS:
        same = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        return [_SCATTERS[name](*widened, **{key: params[key] for key in same})]
    results = eqn.primitive.bind(*widened, **eqn.primitive.get_bind_params(params))
    return list(results) if eqn.primitive.multiple_results else [results]


def _convert_to_int32(x: Any) -> Any:
    """Converts to int32; NaN becomes the smallest number."""
    return jnp.where(jnp.isnan(x), jnp.int32(-(2**31)), x.astype(jnp.int32))


def _is_float16(x: Any) -> bool:
    return getattr(x, "dtype", None) == _HALF
