"""Conformance facts about schedules: how many micro-batches each of them takes."""

from __future__ import annotations

import pytest

from lowering import schedules
from lowering.schedules import ScheduleError


def refused(name: str, stages: int, count: int, **options: object) -> str:
    with pytest.raises(ScheduleError) as caught:
        getattr(schedules, name)(stages, count, **options)
    return str(caught.value)


@pytest.mark.fact("pipeline_schedule.rule_grouped")
@pytest.mark.parametrize("training", [False, True])
def test_grouped_takes_multiples_of_the_stages_to_pass(training: bool) -> None:
    overlap = 3 * (2 if training else 1)
    assert schedules.overlap("grouped", 3, training=training) == overlap
    assert schedules.overlap("grouped", 3, training=training, ipus=[0, 0, 0]) == overlap
    for count in range(1, 25):
        if count % overlap:
            text = refused("grouped", 3, count, training=training)
            assert f"must be a multiple of {overlap}," in text
        else:
            assert schedules.grouped(3, count, training=training).micro_batches == count


@pytest.mark.fact("pipeline_schedule.rule_interleaved")
@pytest.mark.parametrize(
    ("ipus", "training", "overlap"),
    [
        pytest.param(
            [0, 1, 2], False, 3, marks=pytest.mark.fact("pipeline_schedule.interleaved_inf3")
        ),
        pytest.param(
            [0, 1], True, 2, marks=pytest.mark.fact("pipeline_schedule.interleaved_train2")
        ),
        pytest.param(
            [0, 1, 2, 3], True, 4, marks=pytest.mark.fact("pipeline_schedule.interleaved_train4")
        ),
        pytest.param(
            [2, 2, 2], False, 1, marks=pytest.mark.fact("pipeline_schedule.interleaved_inf_same")
        ),
        pytest.param(
            [0, 1, 0, 1], False, 2, marks=pytest.mark.fact("pipeline_schedule.interleaved_inf_0101")
        ),
    ],
)
def test_interleaved_takes_multiples_of_the_rotations(
    ipus: list[int], training: bool, overlap: int
) -> None:
    stages = len(ipus)
    options = {"training": training, "ipus": ipus}
    assert schedules.overlap("interleaved", stages, **options) == overlap
    for count in range(1, 3 * overlap + 1):
        if count % overlap:
            text = refused("interleaved", stages, count, **options)
            assert f"must be a multiple of {overlap}," in text
        else:
            assert schedules.interleaved(stages, count, **options).micro_batches == count


@pytest.mark.fact("pipeline_schedule.rule_sequential")
def test_sequential_takes_any_number() -> None:
    assert schedules.overlap("sequential", 4) == 1
    for count in range(1, 9):
        assert schedules.sequential(4, count).micro_batches == count


@pytest.mark.fact("pipeline_schedule.doc_example")
def test_the_rotations_of_the_originals_example() -> None:
    word = [(ipu,) for ipu in (0, 1, 2, 0, 0, 2, 1, 0)]
    assert schedules.distinct_rotations(word) == (0, 2)


@pytest.mark.fact("pipeline_schedule.not_multiple_inf")
@pytest.mark.parametrize("name", ["grouped", "interleaved"])
def test_the_nearest_good_numbers_are_named(name: str) -> None:
    text = refused(name, 3, 10, training=False)
    assert "must be a multiple of 3" in text
    assert "use 9 or 12 micro-batches" in text


@pytest.mark.fact("pipeline_schedule.grouped_io_tiles")
def test_with_io_tiles_grouped_takes_any_number_from_two_more_on() -> None:
    for training, overlap in ((False, 3), (True, 6)):
        options = {"training": training, "io_tiles": True}
        assert f"at least {overlap + 2}" in refused("grouped", 3, overlap + 1, **options)
        for count in range(overlap + 2, overlap + 9):
            assert schedules.grouped(3, count, **options).micro_batches == count


def test_too_few_micro_batches_name_the_only_good_number() -> None:
    assert "use 8 micro-batches" in refused("grouped", 4, 3)


def test_interleaved_trains_no_two_stages_on_one_ipu() -> None:
    text = refused("interleaved", 4, 4, ipus=[0, 1, 2, 1])
    assert "stages 1 and 3 both on IPU 1" in text
    assert "inference" in text
    schedules.interleaved(4, 4, ipus=[0, 1, 2, 1], training=False)


def test_only_three_schedules_are_the_ipus() -> None:
    with pytest.raises(ScheduleError, match="grouped, interleaved or sequential"):
        schedules.overlap("gpipe", 2)


@pytest.mark.parametrize(
    ("name", "stages", "count", "options", "words"),
    [
        ("grouped", 0, 4, {}, "0 stages"),
        ("grouped", 2, 0, {}, "0 micro-batches"),
        ("sequential", 2, -1, {}, "-1 micro-batches"),
        ("sequential", 2, 5, {"batch_serialization": 2}, "must be a multiple of 2"),
        ("sequential", 2, 5, {"batch_serialization": 0}, "batch_serialization=0"),
        ("gpipe", 3, 4, {"ipus": [0, 1]}, "2 entries of `ipus` for 3 stages"),
        ("gpipe", 2, 4, {"ipus": [0, -1]}, "stage 1 on the IPUs (-1,)"),
        ("gpipe", 2, 4, {"ipus": [0, ()]}, "stage 1 on the IPUs ()"),
        ("gpipe", 2, 4, {"ipus": [0, (1, 1)]}, "stage 1 on the IPUs (1, 1)"),
        ("one_f_one_b", 2, 4, {"ipus": [1, 1]}, "stages 0 and 1 both on IPU 1"),
        ("zero_bubble", 2, 4, {"ipus": [1, 1]}, "stages 0 and 1 both on IPU 1"),
        ("zero_bubble", 2, 4, {"training": False}, "has nothing to split"),
        ("interleaved_one_f_one_b", 5, 4, {}, "an even number of stages"),
        ("interleaved_one_f_one_b", 4, 3, {}, "must be a multiple of 2"),
        ("interleaved_one_f_one_b", 4, 4, {"ipus": [0, 1, 1, 0]}, "they must repeat"),
        ("interleaved_one_f_one_b", 5, 4, {"ipus": [0, 1, 0, 1, 0]}, "they must repeat"),
        ("interleaved_one_f_one_b", 4, 4, {"ipus": [0, (0, 1)] * 2}, "several sets"),
    ],
)
def test_impossible_arguments(
    name: str, stages: int, count: int, options: dict[str, object], words: str
) -> None:
    assert words in refused(name, stages, count, **options)
