"""Sweeps show a few of their variants: every value of every parameter, and each time the same."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from tests.harness import run_python
from tests.sampling import mark_the_rest, sample


@pytest.mark.parametrize("count", [1, 2, 5, 8, 40, 50])
def test_every_value_is_shown_as_often_as_the_others(count: int) -> None:
    sizes = {"engine": 2, "schedule": 4, "size": 5}
    numbers = itertools.product(*map(range, sizes.values()))
    variants = [dict(zip(sizes, these, strict=True)) for these in numbers]
    kept = sample(variants, count, "sweep")
    assert kept[:5] == sample(variants, min(count, 5), "sweep")
    assert len(kept) == min(count, len(variants))
    for name, size in sizes.items():
        shown = Counter(variants[number][name] for number in kept)
        often = [shown[value] for value in range(size)]
        assert max(often) - min(often) <= 2, name
        assert min(often) > 0 or count < 2 * size, name


def test_a_sample_is_spread() -> None:
    kept = sorted(sample([{"case": number} for number in range(100)], 5, "sweep"))
    gaps = [later - earlier for earlier, later in itertools.pairwise(kept)]
    assert min(gaps) >= 10
    assert kept[-1] - kept[0] >= 60


def test_sweeps_of_which_one_is_taken_take_different_ones() -> None:
    engines = [{"engine": 0}, {"engine": 1}]
    firsts = Counter(sample(engines, 1, f"sweep {i}")[0] for i in range(40))
    assert min(firsts[0], firsts[1]) >= 10


CONFTEST = """
import pytest
from tests.sampling import mark_the_rest

def pytest_configure(config):
    for name in ("complete", "exhaustive", "sampled"):
        config.addinivalue_line("markers", name)

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_the_rest(items)
"""
SWEEP = """
import pytest

@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", [*range(9), pytest.param(9, marks=pytest.mark.exhaustive)])
def test_it(case):
    pass

@pytest.mark.sampled(1, 4)
@pytest.mark.parametrize("case", range(20))
def test_large(case):
    pass
"""
RUN = """
import pytest

for chosen in ("not exhaustive and not complete", "exhaustive", "complete"):
    pytest.main(["-q", "-p", "no:cacheprovider", "-m", chosen, "test_it.py"])
"""


def test_what_is_left_out_is_exhaustive(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(SWEEP, encoding="utf-8")
    said = run_python(RUN, 1, tmp_path)
    quick, exhaustive, complete = said.split("[100%]")[1:]
    assert "3 passed, 27 deselected" in quick
    assert "5 passed, 25 deselected" in exhaustive
    assert "22 passed, 8 deselected" in complete


@pytest.mark.parametrize("arguments", [(), ("two",), (0,), (3, 2), (1, 2, 3)])
def test_marks_that_say_no_number(
    request: pytest.FixtureRequest, arguments: tuple[object, ...]
) -> None:
    request.node.add_marker(pytest.mark.sampled(*arguments))
    with pytest.raises(pytest.UsageError, match=r"write @pytest\.mark\.sampled\(4\)"):
        mark_the_rest([request.node])


def test_a_test_without_parameters_is_no_sweep(request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.sampled(4))
    with pytest.raises(pytest.UsageError, match="for tests with parameters"):
        mark_the_rest([request.node])
