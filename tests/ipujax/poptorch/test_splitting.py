"""Blocks that nobody has written."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from ipujax import poptorch
from ipujax.frontends import from_torch
from ipujax.poptorch.splitting import split_into_series


class Network(torch.nn.Module):
    def __init__(self, widths):
        super().__init__()
        pairs = itertools.pairwise(widths)
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in pairs))

    def forward(self, x, y):
        return torch.nn.functional.mse_loss(self.layers(x), y)


def test_stages_have_equal_shares_of_the_weights():
    model, x = Network([4] * 9), torch.ones(2, 4)
    assert poptorch.splitOverIpus(model, 4, x, x) is model
    assert [part.stage for part in from_torch(model, (x, x)).parts] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_large_layer_is_alone():
    model, x = Network([4, 4, 4, 64, 4]), torch.ones(2, 4)
    poptorch.splitOverIpus(model, 2, x, x)
    assert [part.stage for part in from_torch(model, (x, x)).parts] == [0, 0, 0, 1]
    poptorch.removeBlocks(model)
    assert {part.stage for part in from_torch(model, (x, x)).parts} == {None}


def test_too_few_parts_are_refused():
    with pytest.raises(poptorch.Error, match=r"has 2 parts .* split over 3 IPUs"):
        poptorch.splitOverIpus(Network([4, 4, 4]), 3, torch.ones(2, 4), torch.ones(2, 4))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 4))
def test_no_other_series_have_a_smaller_largest_sum(sizes, count):
    count = min(count, len(sizes))

    def largest(firsts):
        return max(sum(sizes[a:b]) for a, b in itertools.pairwise([*firsts, len(sizes)]))

    found = split_into_series(sizes, count)
    assert found[0] == 0
    assert len(set(found)) == count
    others = itertools.combinations(range(1, len(sizes)), count - 1)
    assert largest(found) == min(largest([0, *other]) for other in others)
