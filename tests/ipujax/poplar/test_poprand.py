"""poprand: distributions, and which numbers are the same again."""

from __future__ import annotations

import numpy as np
import pytest

from ipujax import poplar
from ipujax.poplar import poprand, program
from tests.ipujax.poplar.building_graphs import add_tensor, make_engine, make_graph, run

f32 = np.float32
SEED = np.array([3, 4], np.uint32)
COUNT = 20_000


def test_numbers_have_their_distributions() -> None:
    graph, prog = make_graph(), program.Sequence()
    seed = add_tensor(graph, SEED, "seed", 0)
    shape = add_tensor(graph, np.zeros(COUNT, f32), "shape")
    uniform, normal, cut, ones, whole = run(
        graph,
        prog,
        poprand.uniform(graph, seed, 1, shape, poplar.FLOAT, -1.0, 3.0, prog),
        poprand.normal(graph, seed, 2, shape, poplar.HALF, 5.0, 2.0, prog),
        poprand.truncatedNormal(graph, seed, 3, shape, poplar.FLOAT, 1.0, 2.0, 1.5, prog),
        poprand.bernoulli(graph, seed, 4, shape, poplar.INT, 0.3, prog),
        poprand.uniform(graph, seed, 5, shape, poplar.INT, -1, 2, prog),
    )
    assert -1 <= uniform.min() < -0.99
    assert 2.99 < uniform.max() <= 3
    assert uniform.mean() == pytest.approx(1, abs=0.05)
    assert normal.dtype == np.float16
    assert normal.astype(f32).mean() == pytest.approx(5, abs=0.05)
    assert normal.astype(f32).std() == pytest.approx(2, abs=0.05)
    assert np.abs(cut - 1).max() <= 3
    assert (np.abs(cut - 1) > 2.9).any()
    assert set(ones.tolist()) == {0, 1}
    assert ones.mean() == pytest.approx(0.3, abs=0.02)
    assert set(whole.tolist()) == {-1, 0, 1, 2}


def test_a_seed_and_its_modifier_decide_the_numbers() -> None:
    graph, prog = make_graph(), program.Sequence()
    seed, other = add_tensor(graph, SEED, "seed", 0), add_tensor(graph, SEED + 1, "other", 0)
    shape = add_tensor(graph, np.zeros(50, f32), "shape", 7)
    draws = [
        poprand.normal(graph, s, m, shape, poplar.FLOAT, 0.0, 1.0, prog)
        for s, m in ((seed, 1), (seed, 1), (seed, 2), (other, 1))
    ]
    first, again, modified, others = run(graph, prog, *draws)
    np.testing.assert_array_equal(first, again)
    assert (first != modified).all()
    assert (first != others).all()
    assert {n for n, i in enumerate(graph.getTileMapping(draws[0])) if i} == {7}


def test_without_a_seed_each_run_has_other_numbers_until_the_seed_is_set() -> None:
    graph, prog = make_graph(), program.Sequence()
    seed, shape = add_tensor(graph, SEED, "seed", 0), add_tensor(graph, np.zeros(50, f32), "shape")
    setting = program.Sequence()
    poprand.setSeed(graph, seed, 0, setting)
    for name in ("a", "b"):
        draw = poprand.uniform(graph, None, 0, shape, poplar.FLOAT, 0.0, 1.0, prog)
        graph.createHostRead(name, draw)
    engine = make_engine(graph, [prog, setting])
    seen: list[np.ndarray] = []
    for index in (1, 0, 0, 1, 0):
        engine.run(index)
        if index == 0:
            seen += [engine.readTensor("a"), engine.readTensor("b")]
    assert len({each.tobytes() for each in seen[:4]}) == 4
    np.testing.assert_array_equal(seen[0], seen[4])
    np.testing.assert_array_equal(seen[1], seen[5])


def test_dropout_keeps_and_scales_the_same_places_for_a_seed() -> None:
    graph, prog = make_graph(), program.Sequence()
    seed = add_tensor(graph, SEED, "seed", 0)
    x = np.arange(1, COUNT + 1, dtype=f32)
    tensor = add_tensor(graph, x, "x")
    draws = [poprand.dropout(graph, seed, 0, tensor, tensor, 0.8, 1.25, prog) for _ in "ab"]
    kept, again = run(graph, prog, *draws)
    np.testing.assert_array_equal(kept, again)
    assert np.count_nonzero(kept) / COUNT == pytest.approx(0.8, abs=0.02)
    np.testing.assert_array_equal(kept[kept != 0], (x * f32(1.25))[kept != 0])


def test_wrong_seeds_and_probabilities_are_named() -> None:
    graph, prog = make_graph(), program.Sequence()
    x = add_tensor(graph, np.zeros(2, f32), "x")
    with pytest.raises(poplar.index_error, match="seed is tensor 'x'"):
        poprand.uniform(graph, x, 0, x, poplar.FLOAT, 0.0, 1.0, prog)
    with pytest.raises(poplar.poplar_error, match=r"probability is 1.5"):
        poprand.bernoulli(graph, None, 0, x, poplar.FLOAT, 1.5, prog)
