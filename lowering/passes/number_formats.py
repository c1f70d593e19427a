"""The emulation of float16 as the IPU computes it, rounding and adding as options ask.

Every operation that computes a float16 is computed in float32 (exact, next to float16) and rounded
by `lowering.ops.float16_rounding`. Operations that only move data, and all other types, stay as
they are; so do reductions by a function of the user's own (`lax.reduce`, but not with `lax.add`
from zero).

Rounding may draw numbers and raise faults, so it comes before the passes that look for these. How
products are added up does neither: it comes last, on kernels, and the machine model reads the
program from before it.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering import ir, marks
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

_ROUNDED = frozenset({"convert_element_type", *_PRODUCTS, *_WIDENED, *_SCATTERS})


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
        inside = _FormatRequest(format, partials or self.partials, self.by_product)
        task = eqn.params.get("spec")
        return inside.request_of_task(task) if isinstance(task, TaskSpec) else inside

    def request_of_task(self, task: TaskSpec) -> _FormatRequest:
        """Returns the request for what is inside a task."""
        return dc.replace(self, by_product=(*self.by_product, *task.partials))

    def dtype_of_partials(self, product: str) -> str | None:
        """Returns the type of partial results of a primitive; None leaves it to XLA."""
        return self.partials or dict(self.by_product).get(product)


def number_formats(closed: ClosedJaxpr, options: Options, replicas: int) -> ClosedJaxpr:
    """Rewrites every operation that computes a float16, as options and scopes ask.

    Before: derivatives are taken, and collectives resolved.
    After:  where a float16 is rounded as the IPU does it, nothing computes one but conversions, and
            reductions by functions of the user; where rounding is stochastic it draws (see
            `lowering.ops.draws`). The same jaxpr if nothing is asked.

    Products that are only added up in another way are left to `emulate_partial_sums`, unless faults
    are watched, which are those of the sums.
    """
    format = Float16Format(
        limits=options.float16_limits,
        nan=options.nan_on_overflow,
        stochastic=options.stochastic_rounding,
    )
    tests = [_rounds_as_asked]
    if options.fault_kinds_to_report:
        tests.append(_adds_up_as_asked)
    return _Formats(
        EquationFinder(_computes_float16), tests, axis_of_replicas(replicas)
    ).rewrite_shared_body(closed, _FormatRequest(format, by_product=options.partials))


def emulate_partial_sums(program: ir.Program, partials: tuple[tuple[str, str], ...]) -> ir.Program:
    """Has kernels add up products of float16 in the types that options and scopes ask for.

    Before: any program.
    After:  no product of float16 in a kernel, for which a type is asked, gives a float16 by itself.

    Args:
      program: the program, as the machine computes it by itself.
      partials: the type of partial results by primitive, where no scope or stage says otherwise.
    """
    formats = _Formats(EquationFinder(_is_product_of_float16), [_adds_up_as_asked])
    body = formats.rewrite_steps(program.body, _FormatRequest(Float16Format(), by_product=partials))
    if body is program.body:
        return program
    return dc.replace(program, body=body, emulates=True)


@dc.dataclass(slots=True)
class _Formats:
    """A rewriter of bodies.

    Attributes:
      finder: finds the equations that may be rewritten, anywhere inside.
      tests: tell whether one of them is, given what is asked of it.
      axis: the axis of the replicas, if there are several.
      bodies: the bodies that have been rewritten.
      emulations: the emulations of equations, by all that they depend on.
    """

    finder: EquationFinder
    tests: Sequence[Callable[[JaxprEqn, _FormatRequest], bool]]
    axis: tuple[str, int] | None = None
    bodies: dict[tuple[int, _FormatRequest], ClosedJaxpr] = dc.field(
        default_factory=dict[tuple[int, _FormatRequest], ClosedJaxpr]
    )
    emulations: dict[Hashable, ClosedJaxpr] = dc.field(default_factory=dict[Hashable, ClosedJaxpr])

    def rewrite_steps(self, sequence: ir.Sequence, request: _FormatRequest) -> ir.Sequence:
        """Rewrites the kernels of IPUs below a node; the same node if none changes."""
        steps = tuple(self.rewrite_step(step, request) for step in sequence.steps)
        is_same = all(new is old for new, old in zip(steps, sequence.steps, strict=True))
        return sequence if is_same else ir.Sequence(steps)

    def rewrite_step(self, node: ir.Node, request: _FormatRequest) -> ir.Node:
        if isinstance(node, ir.Execute):
            closed = self.rewrite_shared_body(node.kernel.jaxpr, request)
            if closed is node.kernel.jaxpr:
                return node
            return dc.replace(node, kernel=dc.replace(node.kernel, jaxpr=closed))
        inside = request.request_of_task(node.spec) if isinstance(node, ir.Task) else request
        bodies = [body.sequence for body in ir.bodies_of_node(node)]
        new_bodies = [self.rewrite_steps(body, inside) for body in bodies]
        if all(new is old for new, old in zip(new_bodies, bodies, strict=True)):
            return node
        rewritten = iter(new_bodies)
        return ir.rewrite_bodies(node, lambda _: next(rewritten))

    def rewrite_shared_body(self, closed: ClosedJaxpr, request: _FormatRequest) -> ClosedJaxpr:
        """Rewrites a body; a shared one is rewritten once for each request."""
        if not self.finder(closed.jaxpr):
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
            if not (self.finder.test(eqn) or self.finder.occurs_inside(eqn)):
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
            elif any(test(eqn, eqn_request) for test in self.tests):
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


def _is_product_of_float16(eqn: JaxprEqn) -> bool:
    atoms = *eqn.invars, *eqn.outvars
    return eqn.primitive.name in _PRODUCTS and all(_is_float16(atom.aval) for atom in atoms)


def _adds_up_as_asked(eqn: JaxprEqn, request: _FormatRequest) -> bool:
    asked = request.dtype_of_partials(eqn.primitive.name)
    return asked is not None and _is_product_of_float16(eqn)


def _rounds_as_asked(eqn: JaxprEqn, request: _FormatRequest) -> bool:
    name, format = eqn.primitive.name, request.format
    if name == "convert_element_type" and _is_float16(eqn.invars[0].aval):
        return format.limits and dtype_name(eqn.outvars[0].aval) == "int32"
    makes_half = any(_is_float16(var.aval) for var in eqn.outvars)
    return makes_half and format.changes_results and name in _ROUNDED


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
