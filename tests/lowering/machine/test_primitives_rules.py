"""Every primitive that JAX knows has a rule, and every rule's cost is sensible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import jax.scipy.special as jss
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from lowering.jaxprs import JaxprEqn, dtype_name, shape_of, sub_jaxprs
from lowering.machine import IPU1, IPU2, IPU21, Cost, Operation, Shape, Target
from lowering.machine.primitives import ELEMENTWISE, RULES, VIEWS, cost_of_operation

# All that jax 0.10.2 defines, but what calls foreign code.
PRIMITIVES = """
abs accum_grad_in_ref acos acosh add add_any addupdate after_all all_gather all_gather_done
all_gather_invariant all_gather_reduced all_gather_reduced_start all_gather_start all_to_all
all_to_all_done all_to_all_start and approx_top_k argmax argmin asin asinh atan atan2 atanh
axis_index bessel_i0e bessel_i1e bitcast_convert_type box_get box_set broadcast_in_dim broadcast_to
call call_exported call_hi_primitive call_hi_primitive_linearized cbrt ceil check cholesky
cholesky_update clamp closed_call clz complex composite concatenate cond conj conv_general_dilated
convert_element_type copy core_map cos cosh create_linear create_token cudnn_fusion cumlogsumexp
cummax cummin cumprod cumsum custom_jvp_call custom_jvp_call_jaxpr custom_lin custom_linear_solve
custom_partitioning custom_vjp_call custom_vmap_call dce_sink debug_callback debug_print device_put
digamma dim_as_value dimension_size div dot_general dot_product_attention_bwd
dot_product_attention_bwd_wrapper dot_product_attention_fp8_bwd
dot_product_attention_fp8_bwd_wrapper dot_product_attention_fp8_fwd
dot_product_attention_fp8_fwd_wrapper dot_product_attention_fwd dot_product_attention_fwd_wrapper
dynamic_slice dynamic_update_slice eig eigh empty empty2 empty_ref eq eq_to erf erf_inv erfc
eval_jaxpr exp exp2 expm1 fft floor free_ref freeze from_edtype gather ge geqp3 geqrf get gt
hessenberg householder_product igamma igamma_grad_a igammac imag inspect_sharding integer_pow
io_callback iota iota_2x32_shape is_finite jit layout_constraint le le_to lgamma linear_call log
log1p log_extend log_read logistic lt lt_to lu lu_pivots_to_permutation max min mul mulhi name ne
neg new_box new_log new_ref nextafter not optimization_barrier or ormqr pad pbroadcast
pbroadcast_done
pbroadcast_start philox2x32 philox4x32 pin platform_index pmax pmin polygamma population_count pow
ppermute ppermute_done ppermute_start precv preduced psend psum psum_done psum_invariant
psum_invariant_start psum_start pure_callback pvary qr ragged_all_to_all ragged_dot_general
random_bits random_clone random_fold_in random_gamma random_seed random_split random_unwrap
random_wrap real reduce reduce_and reduce_max reduce_min reduce_or reduce_precision reduce_prod
reduce_scatter reduce_scatter_done reduce_scatter_start reduce_sum reduce_window reduce_window_max
reduce_window_min reduce_window_sum reduce_xor reduced_vary_cast_p regularized_incomplete_beta rem
remat2 remat_opt reshape reshard rev rng_bit_generator rng_uniform round rsqrt run_state scaled_dot
scaled_matmul scaled_matmul_wrapper scan scatter scatter-add scatter-max scatter-min scatter-mul
scatter-sub schur select_and_gather_add select_and_scatter select_and_scatter_add select_n
shape_assertion shard_map sharding_constraint shift_left shift_right_arithmetic shift_right_logical
sign sin sinh slice sort split sqrt square squeeze stack stage stop_gradient sub svd swap
symmetric_product tan tanh threefry2x32 threefry4x32 tie tile to_edtype top_k transpose
triangular_solve tridiagonal tridiagonal_solve unpin unreachable unreduced_psum
unreduced_psum_start unreduced_reduce_scatter unreduced_reduce_scatter_start unstack
vary_unreduced_cast_p while with_memory_space_constraint xor zeros_like zeta
ipu_all_gather ipu_cross_replica_sum ipu_dequeue ipu_draw_key ipu_enqueue ipu_load
ipu_random_halves ipu_recomputation_checkpoint ipu_repeat ipu_replica_count ipu_replication_index
ipu_store ipu_task
"""

PLANNED = {"dot_general", "conv_general_dilated", "multi_conv"}  # the planner's, tested there


def cycles(found: Cost, target: Target = IPU2) -> float:
    return found.cycles_with_exchange(
        target.exchange_bytes, target.exchange_cycles, target.sync_cycles
    )


def test_every_primitive_has_a_rule() -> None:
    assert set(PRIMITIVES.split()) <= RULES.keys()


x = jax.ShapeDtypeStruct((64, 96), jnp.float32)
square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
integers = jax.ShapeDtypeStruct((64, 96), jnp.int32)
halves = jax.ShapeDtypeStruct((64, 96), jnp.float16)
complexes = jax.ShapeDtypeStruct((64, 96), jnp.complex64)
image = jax.ShapeDtypeStruct((2, 16, 16, 8), jnp.float32)
index = jax.ShapeDtypeStruct((5,), jnp.int32)

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "special": (
        lambda a: (
            jss.gammaln(a)
            + jss.digamma(a)
            + jss.i0e(a)
            + jss.i1e(a)
            + jss.erfinv(a)
            + jss.gammainc(a, a)
            + jss.betainc(a, a, a)
            + jss.zeta(a, a)
            + jss.polygamma(2, a)
        ),
        (x,),
    ),
    "elementwise": (
        lambda a: jnp.cbrt(jnp.sinh(a) * jnp.arctan2(a, 2.0) ** a) + jnp.where(a > 0, a, -a) % 3.0,
        (x,),
    ),
    "integers": (lambda a: (a << 2) // 3 + lax.population_count(a) ^ lax.clz(a), (integers,)),
    "casts": (lambda a: a.astype(jnp.float32).astype(jnp.int8).astype(bool), (halves,)),
    "complex": (lambda a: jnp.abs(jnp.conj(a) * jnp.fft.fft2(a).real), (complexes,)),
    "softmax": (lambda a: jax.nn.log_softmax(a) + jax.nn.logsumexp(a), (halves,)),
    "norm": (lambda a: (a - a.mean(0)) * lax.rsqrt(a.var(0)), (x,)),
    "reductions": (
        lambda a: (a.argmax(1), a.prod(), (a > 0).any(0), (a > 0).all(), a.max(1)),
        (x,),
    ),
    "running": (
        lambda a: jnp.cumsum(a, 1) + jnp.cumprod(a, 0) + lax.cumlogsumexp(a) + lax.cummax(a),
        (x,),
    ),
    "sorting": (lambda a: (jnp.argsort(a, 0), lax.top_k(a, 3), lax.approx_max_k(a, 3)), (x,)),
    "indexing": (lambda a, i: a.at[i].add(a[i]).at[i].set(a[i[0]]).at[:, i].mul(2.0), (x, index)),
    "slicing": (
        lambda a, i: lax.dynamic_update_slice(
            a, lax.dynamic_slice(a, (i[0], 3), (2, 5)), (i[1], i[2])
        ),
        (x, index),
    ),
    "views": (
        lambda a: jnp.concatenate([jnp.pad(a.T[::-1], 2).reshape(-1), jnp.split(a, 2)[0].ravel()]),
        (x,),
    ),
    "pooling": (
        jax.grad(
            lambda a: lax.reduce_window(
                a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"
            ).sum()
        ),
        (image,),
    ),
    "random": (
        lambda a: (
            a * jax.random.normal(jax.random.key(1), a.shape)
            + jax.random.gamma(jax.random.split(jax.random.key(2))[0], a)
        ),
        (x,),
    ),
    "linear algebra": (
        lambda a, b: (
            jnp.linalg.qr(a),
            jnp.linalg.svd(a),
            jnp.linalg.eigh(a),
            jsl.lu_factor(a),
            jsl.solve_triangular(a, b),
            jnp.linalg.cholesky(a),
            jnp.linalg.slogdet(a),
        ),
        (square, x),
    ),
    "tridiagonal": (lambda a, b: lax.linalg.tridiagonal_solve(a[0], a[1], a[2], b), (square, x)),
    "references": (lambda a: _reads_and_writes(a), (x,)),
}


def _reads_and_writes(a: jax.Array) -> jax.Array:
    ref = jax.new_ref(a)
    ref[...] += 1.0
    return ref[...]


def equations(jaxpr: Any) -> Iterator[JaxprEqn]:
    for eqn in jaxpr.eqns:
        inner = list(sub_jaxprs(eqn))
        for body in inner:
            yield from equations(body)
        if not inner:
            yield eqn


def operation(eqn: JaxprEqn) -> Operation:
    def shapes(atoms: Any) -> tuple[Shape, ...]:
        return tuple(Shape(shape_of(atom.aval), dtype_name(atom.aval)) for atom in atoms)

    params = tuple((key, value) for key, value in eqn.params.items() if _hashable(value))
    return Operation(eqn.primitive.name, shapes(eqn.invars), shapes(eqn.outvars), params)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@pytest.mark.sampled(25)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("target", [IPU1, IPU2, IPU21], ids=lambda target: target.name)
def test_costs_of_traced_programs(program: str, target: Target) -> None:
    function, arguments = PROGRAMS[program]
    found = list(equations(jax.make_jaxpr(function)(*arguments).jaxpr))
    assert found
    for eqn in found:
        op = operation(eqn)
        assert op.name in RULES
        if op.name not in PLANNED:
            check(op, cost_of_operation(op, target), target)


def check(op: Operation, found: Cost, target: Target) -> None:
    total = cycles(found, target)
    assert math.isfinite(total), op
    assert total >= 0, op
    assert found.source in ("formula", "default")
    assert found.moves_nothing == (not found.phases), op
    assert found.operands == () or len(found.operands) == len(op.operands)
    assert found.results == () or len(found.results) == len(op.results)
    assert all(phase.compute >= 0 and phase.exchange_bytes >= 0 for phase in found.phases)
    for kind in found.vertices:
        assert 1 <= kind.tiles <= target.tiles_per_ipu
        assert 1 <= kind.per_tile <= target.workers


@pytest.mark.parametrize("dims", [(), (7,), (64, 48), (0, 5), (3, 1, 1000, 64)])
def test_no_rule_needs_parameters(dims: tuple[int, ...]) -> None:
    array = Shape(dims, "float32")
    for name in sorted(RULES.keys() - PLANNED):
        op = Operation(name, (array,) * 3, (array,))
        found = cost_of_operation(op, IPU2)
        check(op, found, IPU2)
        if not array.elements:
            assert cycles(found) == 0, name


LARGER = ["add", "exp", "select_n", "reduce_sum", "cumsum", "sort", "copy", "fft", "qr", "psum"]


@settings(max_examples=200)
@given(
    st.sampled_from([*LARGER, "random_bits", "dynamic_update_slice", "reduce_window_max"]),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(["float32", "float16", "int32"]),
)
def test_more_elements_never_cost_less(name: str, rows: int, more: int, dtype: str) -> None:
    costs: list[float] = []
    for count in (rows, rows + more):
        array = Shape((1472 * count, 256), dtype)
        costs.append(cycles(cost_of_operation(Operation(name, (array,) * 3, (array,)), IPU2)))
    assert costs[0] <= costs[1]


def test_kinds_are_told_apart() -> None:
    assert ELEMENTWISE <= RULES.keys()
    assert VIEWS <= RULES.keys()
    array = Shape((64, 64), "float32")
    for name in ELEMENTWISE:
        assert (
            cost_of_operation(Operation(name, (array,) * 2, (array,)), IPU2).phases
            or "convert" in name
        )
    for name in VIEWS:
        assert cost_of_operation(Operation(name, (array,) * 2, (array,)), IPU2).moves_nothing
