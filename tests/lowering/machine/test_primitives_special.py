"""Costs of functions that poplibs lacks, of complex numbers, casts, scans and transforms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering.machine import IPU2, Cost, Operation, Shape
from lowering.machine.primitives import (
    BINARY,
    COMPLEX,
    COMPOSED,
    INTEGER,
    SPECIAL,
    UNARY,
    add_counts,
    cost_of_operation,
    cycles_per_element,
)

DIMS = (1472, 384)  # 384 elements on a tile, 64 on a worker


def cycles(found: Cost) -> float:
    return found.cycles_with_exchange(IPU2.exchange_bytes, IPU2.exchange_cycles, IPU2.sync_cycles)


def compute(name: str, dtype: str, reads: int = 1, to: str | None = None, **params) -> float:
    array, result = Shape(DIMS, dtype), Shape(DIMS, to or dtype)
    found = cost_of_operation(
        Operation(name, (array,) * reads, (result,), tuple(params.items())), IPU2
    )
    assert found.source == "formula", name
    return found.phases[0].compute


def test_counts_add_up() -> None:
    assert add_counts({"a": 1}, {"a": 2, "b": 3}, times=2) == {"a": 6, "b": 6}


@pytest.mark.parametrize("table", [COMPOSED, INTEGER, SPECIAL, COMPLEX])
def test_everything_is_made_of_what_the_tables_have(table) -> None:
    for counts in table.values():
        assert counts.keys() <= {*UNARY, *BINARY, "select_n"}
        assert all(count > 0 for count in counts.values())


def test_a_complex_quotient_costs_more_than_a_product_and_that_more_than_a_real_quotient() -> None:
    order = [("add", "float32"), ("add", "complex64"), ("div", "float32"), ("mul", "complex64")]
    order = [*order, ("div", "complex64")]
    costs = [compute(name, dtype, 2) for name, dtype in order]
    assert costs == sorted(costs)
    # 29 to start; six operations of 3 cycles for 2 floats; 64 numbers on a worker.
    assert compute("mul", "complex64", 2) == 6 * (29 + 64 * 9) + 11


def test_complex_functions_cost_more_than_real_ones() -> None:
    # A tangent of a float is slow in the original, slower than the sine and cosine that XLA takes.
    for name in sorted(COMPLEX.keys() - {"conj", "inverse", "select_n", "tan"}):
        reads = 2 if name in BINARY else 1
        assert compute(name, "complex64", reads) > compute(name, "float32", reads), name
    assert compute("integer_pow", "complex64", y=3) > compute("integer_pow", "float32", y=3)
    assert compute("integer_pow", "complex64", y=5) > compute("integer_pow", "complex64", y=2)


def test_series_cost_what_their_terms_do() -> None:
    """An incomplete gamma function takes the terms of both its expansions and a logarithm."""
    order = ["exp", "bessel_i0e", "erf_inv", "lgamma", "digamma", "igamma", "igamma_grad_a"]
    costs = [compute(name, "float32") for name in order]
    assert costs == sorted(costs)
    assert compute("polygamma", "float32", 2) > compute("zeta", "float32", 2)
    assert compute("regularized_incomplete_beta", "float32", 3) > compute("lgamma", "float32")
    # 25 terms of a multiplication, a subtraction and an addition at 1.5 cycles are the most of it.
    assert cycles_per_element({"bessel_i0e": 1}, "float32") == pytest.approx(25 * 3 * 1.5, rel=0.35)


def counted(fn, *arguments) -> dict[str, int]:
    """The operations of StableHLO in what JAX lowers a function to."""
    text = jax.jit(fn).lower(*arguments).as_text()
    words = {"multiply": "mul", "subtract": "sub", "add": "add", "divide": "div"}
    return {ours: text.count(f"stablehlo.{theirs} ") for theirs, ours in words.items()}


def test_the_chebyshev_series_is_jaxs() -> None:
    found = counted(lax.bessel_i0e, jnp.ones(4))
    assert {name: SPECIAL["bessel_i0e"][name] for name in found} == found


def test_special_functions_of_halves_are_those_of_floats() -> None:
    assert compute("lgamma", "float16") == pytest.approx(compute("lgamma", "float32"), rel=0.01)


@pytest.mark.parametrize(
    ("source", "result", "each"),
    [
        ("float32", "float16", 2 / 4),
        ("float16", "float32", 1 / 2),
        ("bfloat16", "float16", 1 / 4),
        ("int8", "float32", 7 / 2),
        ("uint8", "float16", 9 / 4),
        ("float32", "int8", 14 / 4),
        ("float16", "uint8", 16 / 4),
        ("int32", "float32", 2),
        ("bool", "float16", 2),
        ("float8_e4m3fn", "float16", 2),
        ("int32", "int64", 5),
    ],
)
def test_casts_have_the_loops_of_poplibs(source: str, result: str, each: float) -> None:
    found = cost_of_operation(
        Operation("convert_element_type", (Shape(DIMS, source),), (Shape(DIMS, result),)), IPU2
    )
    assert found.phases[0].compute == pytest.approx(6 * (37 + 64 * each) + 12, rel=0.02)
    assert found.source == "formula"


def test_small_integers_are_worked_on_as_words() -> None:
    assert compute("add", "int8", 2) == compute("add", "int32", 2)
    assert compute("max", "uint16", 2) == compute("max", "int32", 2)
    assert compute("add", "int64", 2) == 6 * (29 + 64 * 11) + 11


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cumlogsumexp"])
def test_scans_grow_with_their_elements_and_take_steps_for_powers_of_two(name: str) -> None:
    def scan(n: int, others: int = 1) -> Cost:
        array = Shape((n, others), "float32")
        return cost_of_operation(Operation(name, (array,), (array,), (("axis", 0),)), IPU2)

    assert [len(scan(n).phases) for n in (2, 4, 1024)] == [2, 5, 29]
    work = [sum(phase.compute for phase in scan(n).phases) for n in (1 << 27, 1 << 29)]
    assert work[1] == pytest.approx(4 * work[0], rel=0.1)
    assert not scan(1).phases
    # Rows that lie on a tile are scanned there.
    array = Shape((1472, 64), "float32")
    there = cost_of_operation(Operation(name, (array,), (array,), (("axis", 1),)), IPU2)
    assert not any(phase.exchange_bytes for phase in there.phases)
    assert there.source == "formula"


def test_scans_of_dear_operations_cost_more() -> None:
    array = Shape((1 << 16,), "float32")
    sums, exponentials = (
        cycles(cost_of_operation(Operation(name, (array,), (array,), (("axis", 0),)), IPU2))
        for name in ("cumsum", "cumlogsumexp")
    )
    assert sums < exponentials


def test_transforms_take_a_pass_for_every_factor() -> None:
    def fft(n: int) -> Cost:
        array = Shape((64, n), "complex64")
        return cost_of_operation(
            Operation("fft", (array,), (array,), (("fft_lengths", (n,)),)), IPU2
        )

    assert [len(fft(n).phases) for n in (2, 8, 1024, 12, 35)] == [1, 3, 10, 3, 2]
    assert len(fft(17).phases) == 3 * 6  # three of 64, Bluestein
    assert not fft(1).phases
    assert fft(1024).source == "formula"
    assert cycles(fft(1024)) < cycles(fft(1021))
    # 5 n log2 n, as usual: a product of six and two sums of two for two elements.
    assert fft(1024).flops == 64 * 1024 * 10 * (6 / 2 + 2)


def test_gammas_take_more_rounds_the_more_there_are() -> None:
    few, many = Shape((1472 * 2,), "float32"), Shape((1472 * 2 * 64,), "float32")
    costs = [
        cost_of_operation(Operation("random_gamma", (some, some), (some,)), IPU2)
        for some in (few, many)
    ]
    assert costs[1].flops / many.elements > costs[0].flops / few.elements
    assert {found.source for found in costs} == {"formula"}
