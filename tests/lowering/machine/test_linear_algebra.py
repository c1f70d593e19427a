"""Costs of linear algebra grow as their algorithms do."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import pytest

from lowering import machine
from lowering.machine import IPU2, Cost, Operation, Phase, Shape
from lowering.machine.primitives import (
    RULES,
    cost_of_chain,
    cost_of_operation,
    count_jacobi_sweeps,
    sum_costs,
)
from tests.lowering.samples import lowered


def cycles(found: Cost) -> float:
    return found.cycles_with_exchange(IPU2.exchange_bytes, IPU2.exchange_cycles, IPU2.sync_cycles)


def square(name: str, n: int, batch: int = 1, dtype: str = "float32") -> Cost:
    matrix = Shape((batch, n, n) if batch > 1 else (n, n), dtype)
    return cost_of_operation(Operation(name, (matrix, matrix), (matrix,)), IPU2)


# The most and the least that four times the extent can cost: steps grow with it at least, and no
# algorithm does more than n^3 work. Schur's steps, one after the other, are n^2.
CUBIC = (
    *("cholesky", "eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu"),
    *("ormqr", "qr", "schur", "svd", "symmetric_product", "triangular_solve", "tridiagonal"),
)


@pytest.mark.parametrize("name", CUBIC)
def test_four_times_the_extent_costs_more_than_twice_and_at_most_64_times(name: str) -> None:
    costs = [cycles(square(name, n)) for n in (512, 2048)]
    assert 2.0 * costs[0] < costs[1] < 64 * costs[0]
    assert square(name, 512).source == "formula"
    flops = [square(name, n).flops for n in (512, 2048)]
    assert 15 * flops[0] < flops[1] < 80 * flops[0]


@pytest.mark.parametrize("name", ["eigh", "qr", "tridiagonal", "geqrf"])
def test_large_ones_are_cubic(name: str) -> None:
    """Where every tile has many rows, twice the extent is nearly eight times the work."""
    assert cycles(square(name, 16384)) / cycles(square(name, 8192)) == pytest.approx(8, rel=0.15)


def test_harder_problems_cost_more() -> None:
    order = ["symmetric_product", "lu", "geqrf", "qr", "eigh", "svd", "eig"]
    costs = [cycles(square(name, 1024)) for name in order]
    assert costs == sorted(costs)


@pytest.mark.parametrize("name", sorted({"cholesky_update", "tridiagonal_solve", *CUBIC}))
def test_batches_share_steps(name: str) -> None:
    one, many = cycles(square(name, 64)), cycles(square(name, 64, batch=8))
    assert one <= many < 8 * one


@pytest.mark.parametrize("name", ["cholesky", "qr", "lu", "triangular_solve", "eigh"])
def test_complex_matrices_cost_more(name: str) -> None:
    assert cycles(square(name, 256, dtype="complex64")) > cycles(square(name, 256))


def test_blocks_of_cholesky_are_the_originals() -> None:
    """Up to 128, one vertex on one tile; the estimator's cycles, and the other triangle's zeros."""
    found = square("cholesky", 128)
    zeros = cycles(cost_of_chain(("select_n",), Shape((1, 128, 128), "float32"), IPU2))
    block = 128**3 + 102 * 128**2 + 101 * 128 + 102 + 128 * 128 * 4 / IPU2.exchange_bytes
    fixed = IPU2.sync_cycles + IPU2.exchange_cycles + machine.SUPERSTEP_CYCLES
    assert cycles(found) == pytest.approx(block + fixed + zeros)
    names = {phase.name: phase.times for phase in square("cholesky", 512).phases}
    assert names["Cholesky"] == 4
    assert names["TriangularInverse"] == 3


def code(name: str, n: int, **blocks: int) -> dict[str, int]:
    """Bytes on all tiles of the code of one operation, by category."""
    solve = {
        "cholesky_block": jnp.linalg.cholesky,
        "triangular_block": lambda x: jax.scipy.linalg.solve_triangular(x, x, lower=True),
    }[name]
    program = lowered(solve, jax.ShapeDtypeStruct((n, n), jnp.float32), ipus=1)
    options = machine.ModelOptions(plans=machine.PlanOptions(**{name: blocks["block"]}))
    found = machine.model(program, options).memory.tile_categories
    return {name: int(found[name].sum()) for name in found}


def test_steps_of_cholesky_are_unrolled() -> None:
    """With N rows there is code for N / size steps: less in large blocks."""
    by_size = [code("cholesky_block", 1024, block=size) for size in (32, 64, 128, 256)]
    for category in ("control_code", "exchange_code", "vertex_state"):
        bytes_ = [found[category] for found in by_size]
        assert bytes_ == sorted(bytes_, reverse=True)
    control = [found["control_code"] for found in by_size]
    for smaller, larger in itertools.pairwise(control):
        assert smaller == pytest.approx(2 * larger, rel=0.2)


def test_steps_of_triangular_systems_are_unrolled() -> None:
    """With N rows there is code for log2(N / size) steps: as much more each time."""
    sizes = (32, 64, 128, 256)
    control = [code("triangular_block", 1024, block=size)["control_code"] for size in sizes]
    fewer = [smaller - larger for smaller, larger in itertools.pairwise(control)]
    assert min(fewer) > 0
    assert max(fewer) <= 1.5 * min(fewer)


def test_a_triangular_system_is_halved_down_to_blocks() -> None:
    phases = {phase.name: phase.times for phase in square("triangular_solve", 512).phases}
    assert phases["TriangularSolve"] == 4
    assert "TriangularInverse" not in phases


def test_columns_of_lu_have_their_pivots() -> None:
    found = square("lu", 96)
    assert {phase.times for phase in found.phases} == {96}
    assert not square("lu", 0).phases


@pytest.mark.parametrize(("n", "counted"), [(4, 3), (16, 5), (64, 6), (128, 7), (256, 7)])
def test_sweeps_of_jacobi(n: int, counted: int) -> None:
    """Against counts on random matrices in float32; one more is allowed for."""
    assert 0 <= count_jacobi_sweeps(n) - counted <= 1


def test_swaps_and_diagonals_are_followed_one_by_one() -> None:
    for name in ("lu_pivots_to_permutation", "tridiagonal_solve"):
        costs = []
        for n in (1000, 4000):
            line = Shape((n,), "int32" if name.startswith("lu") else "float32")
            costs.append(cycles(cost_of_operation(Operation(name, (line,), (line,)), IPU2)))
        assert costs[1] == pytest.approx(4 * costs[0], rel=0.1), name


def test_parts_run_as_often_as_they_are_asked_to() -> None:
    part = Cost(phases=(Phase("a", 10.0, 40.0), Phase("b", 5.0)), repeats=3, flops=7.0)
    found = sum_costs([(4, part), (0, part)])
    assert [phase.times for phase in found.phases] == [12, 12]
    assert cycles(found) == 4 * cycles(part)
    assert found.flops == 28
    assert sum_costs([]).moves_nothing
    assert [phase.code_copies for phase in found.phases] == [1, 1]
    unrolled = sum_costs([(4, part)], unrolled=True)
    assert [phase.code_copies for phase in unrolled.phases] == [12, 12]
    assert cycles(unrolled) == cycles(found)


def test_nothing_is_factorized_for_nothing() -> None:
    for name in (*CUBIC, "cholesky_update", "geqp3", "tridiagonal_solve"):
        assert not square(name, 0).phases, name
        assert name in RULES
    assert math.isfinite(cycles(square("svd", 1)))
