"""Makes float16 what the IPU makes of it, and rounds and adds as the scopes and options ask.

Every operation that computes a float16 is computed in float32 (exact, next to float16) and brought
back by `lowering.narrow`. Operations that only move data, and all other types, stay as they are; so
do reductions by a function of the user's own (`lax.reduce`, but not with `lax.add` from zero).
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering import marks
from lowering.avals import dtype_name
from lowering.control_flow import is_control_flow
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    call_body,
    in_context_of,
    map_sub_jaxprs,
    name_stack,
    sub_jaxprs,
)
from lowering.narrow import Format, narrow
from lowering.ops.collectives import axis_of
from lowering.ops.tasks import TaskSpec
from lowering.options import Options
from lowering.partials import in_float16, in_float32
from lowering.passes.rewrite import Anywhere, Rewriter

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

# They hold a function of elements of the operands' type, which these make anew.
_SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter-add": lax.scatter_add,
    "scatter-mul": lax.scatter_mul,
    "scatter-sub": lax.scatter_sub,
}


@dc.dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of an operation.

    Attributes:
      format: what becomes of results.
      partials: the type of partial results, if a scope names one.
      by_product: else, that of some primitives.
    """

    format: Format
    partials: str | None = None
    by_product: tuple[tuple[str, str], ...] = ()

    def of(self, eqn: JaxprEqn) -> _Asked:
        """What is asked of an equation inside."""
        marked = marks.read(name_stack(eqn))
        if marked.outside is not None:
            return _Asked(Format())  # the host is no IPU
        rounding, partials = marked.stochastic_rounding, marked.partials_type
        format = self.format
        if rounding is not None:
            format = dc.replace(format, stochastic=rounding)
        task = eqn.params.get("spec")
        of_stage = task.partials if isinstance(task, TaskSpec) else ()
        return _Asked(format, partials or self.partials, (*self.by_product, *of_stage))

    def sums(self, product: str) -> str | None:
        """The type of partial results of a primitive; None leaves it to XLA."""
        return self.partials or dict(self.by_product).get(product)


def number_formats(closed: ClosedJaxpr, options: Options, replicas: int) -> ClosedJaxpr:
    """Rewrites every operation that computes a float16, as far as anything is asked of it.

    Before: derivatives are taken, and collectives resolved.
    After:  nothing computes a float16 but conversions, and reductions by functions of the user;
            where rounding is stochastic it draws (see `lowering.draws`). The same jaxpr if nothing
            is asked.
    """
    format = Format(
        limits=options.float16_limits,
        nan=options.nan_on_overflow,
        stochastic=options.stochastic_rounding,
    )
    return _Formats(axis_of(replicas), Anywhere(_has_half)).body(
        closed, _Asked(format, by_product=options.partials)
    )


@dc.dataclass(slots=True)
class _Formats:
    """Rewrites bodies.

    Attributes:
      axis: the replicas, if there are several.
      halves: whether a jaxpr has a float16 anywhere inside.
      bodies: those that have been rewritten.
    """

    axis: tuple[str, int] | None
    halves: Anywhere
    bodies: dict[tuple[int, _Asked], ClosedJaxpr] = dc.field(
        default_factory=dict[tuple[int, _Asked], ClosedJaxpr]
    )

    def body(self, closed: ClosedJaxpr, asked: _Asked) -> ClosedJaxpr:
        """The body; a shared one is rewritten once for each thing that is asked of it."""
        if not self.halves(closed.jaxpr):
            return closed
        key = (id(closed.jaxpr), asked)
        if key not in self.bodies:
            self.bodies[key] = self.rewritten(closed, asked)
        return self.bodies[key]

    def rewritten(self, closed: ClosedJaxpr, asked: _Asked) -> ClosedJaxpr:
        rewriter, changed = Rewriter(closed.jaxpr), False
        for eqn in closed.jaxpr.eqns:
            if not (_has_half(eqn) or self.halves.inside(eqn)):
                rewriter.keep(eqn)
                continue
            wanted = asked.of(eqn)
            if is_control_flow(eqn) or call_body(eqn) is not None:
                new = map_sub_jaxprs(eqn, lambda inner, wanted=wanted: self.body(inner, wanted))
                pairs = zip(sub_jaxprs(new), sub_jaxprs(eqn), strict=True)
                same = all(mine is theirs for mine, theirs in pairs)
                changed |= not same
                rewriter.keep(eqn if same else new)
            elif _is_changed(eqn, wanted):
                changed = True
                with in_context_of(eqn):
                    rewriter.trace(eqn, _function(eqn, wanted), self.axis)
            else:
                rewriter.keep(eqn)
        return rewriter.closed(closed.consts) if changed else closed


def _has_half(eqn: JaxprEqn) -> bool:
    return any(_is_half(atom.aval) for atom in (*eqn.invars, *eqn.outvars))


def _is_changed(eqn: JaxprEqn, asked: _Asked) -> bool:
    name, format = eqn.primitive.name, asked.format
    makes_half = any(_is_half(var.aval) for var in eqn.outvars)
    if name in _PRODUCTS:
        takes_half = all(_is_half(atom.aval) for atom in eqn.invars)
        return makes_half and (format.acts or (takes_half and asked.sums(name) is not None))
    if name == "convert_element_type":
        (source,), (target,) = eqn.invars, eqn.outvars
        if _is_half(source.aval):
            return format.limits and dtype_name(target.aval) == "int32"
        return makes_half and format.acts
    return makes_half and format.acts and (name in _WIDENED or name in _SCATTERS)


def _function(eqn: JaxprEqn, asked: _Asked) -> Any:
    """The equation as a function of its operands that does what is asked."""
    name = eqn.primitive.name

    def function(*operands: Any) -> list[Any]:
        if name == "convert_element_type" and _is_half(jnp.asarray(operands[0])):
            return [_as_integer(operands[0])]
        if name in _PRODUCTS and asked.sums(name) == "float16":
            wide = in_float16(eqn, operands, asked.format)
        else:
            wide = _wide(eqn, operands)
        return [
            narrow(result, name, operands, asked.format) if _is_half(var.aval) else result
            for result, var in zip(wide, eqn.outvars, strict=True)
        ]

    return function


def _wide(eqn: JaxprEqn, operands: Any) -> list[Any]:
    """The equation's results, computed in float32."""
    name, params = eqn.primitive.name, eqn.params
    if name == "convert_element_type":
        return [operands[0].astype(jnp.float32)]
    if name in _PRODUCTS:
        return [in_float32(eqn, operands)]
    widened = [x.astype(jnp.float32) if _is_half(jnp.asarray(x)) else x for x in operands]
    if name in _SCATTERS:
        same = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        return [_SCATTERS[name](*widened, **{key: params[key] for key in same})]
    results = eqn.primitive.bind(*widened, **eqn.primitive.get_bind_params(params))
    return list(results) if eqn.primitive.multiple_results else [results]


def _as_integer(x: Any) -> Any:
    """A conversion to int32; what is no number becomes the smallest one."""
    return jnp.where(jnp.isnan(x), jnp.int32(-(2**31)), x.astype(jnp.int32))


def _is_half(x: Any) -> bool:
    return getattr(x, "dtype", None) == _HALF
