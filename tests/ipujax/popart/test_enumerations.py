"""PopART's enumerations are numbers, as those of its C++ library are in Python."""

from __future__ import annotations

import enum

import pytest

from ipujax import popart
from ipujax.errors import PopARTTypeError
from ipujax.popart import check

ENUMS = [
    each
    for name in popart.__all__
    if isinstance(each := getattr(popart, name), type) and issubclass(each, enum.Enum)
]


@pytest.mark.parametrize("kind", ENUMS, ids=lambda kind: kind.__name__)
def test_members_are_counted_from_zero_and_ordered(kind: type[enum.Enum]) -> None:
    members: list = [*kind]
    assert [int(member) for member in members] == list(range(len(members)))
    assert sorted(members, reverse=True) == members[::-1]
    assert members[0] <= members[-1] >= members[0]
    assert (members[0] < members[-1]) == (members[-1] > members[0]) == (len(members) > 1)


def test_numbers_are_the_originals() -> None:
    assert int(popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized) == 3
    assert int(popart.SubgraphCopyingStrategy.JustInTime) == 1
    assert int(popart.DataType.FLOAT16) == 10
    assert ["a", "b"][popart.ReductionType.Mean] == "b"


def test_a_member_equals_no_number_and_no_member_of_others() -> None:
    assert popart.ReductionType.Mean != 1
    assert popart.ReductionType.Mean != popart.TileSet.IO
    with pytest.raises(TypeError):
        assert popart.ReductionType.Mean < popart.TileSet.IO


def test_a_member_is_no_count() -> None:
    with pytest.raises(PopARTTypeError, match="must be an integer"):
        check.require_integer(popart.ReductionType.Mean, "a count")
