"""Which stage and IPU the blocks of a model get."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from ipujax import poptorch
from ipujax.poptorch.strategies import Place


def test_listed_stages_decide() -> None:
    strategy = poptorch.PipelinedExecution(poptorch.Stage("a", "b"), ["c", "d"], "e")
    strategy.stage("e").ipu(5)
    placing = strategy.create_placer()
    assert placing.place_block("c") == Place(stage=1, ipu=1)
    assert placing.place_block("b", ipu_id=3) == Place(stage=0, ipu=3)
    assert placing.place_block("e", ipu_id=3) == Place(
        stage=2, ipu=5
    )  # what the stage says goes first
    assert [stage.blocks for stage in strategy.stages()] == [("a", "b"), ("c", "d"), ("e",)]
    with pytest.raises(poptorch.Error, match=r"Unknown Block 'x': .* 'a', 'b'"):
        placing.place_block("x")


def test_a_stage_is_its_ipu() -> None:
    placing = poptorch.PipelinedExecution().create_placer()
    places = [placing.place_block(name, ipu) for name, ipu in (("a", 0), ("b", 1), ("c", 0))]
    assert places == [Place(0, 0), Place(1, 1), Place(0, 0)]
    with pytest.raises(poptorch.Error, match="no IPU was specified for block 'd'"):
        placing.place_block("d")


def test_stages_count_up() -> None:
    placing = poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement).create_placer()
    places = [placing.place_block(name, ipu) for name, ipu in (("a", 0), ("b", 1), ("c", 0))]
    assert places == [Place(0, 0), Place(1, 1), Place(2, 0)]
    assert placing.place_block("named") == Place(3, 3)
    assert placing.place_block("named") == Place(3, 3)


def test_what_is_no_stage_is_refused() -> None:
    with pytest.raises(poptorch.Error, match="'a' is associated with more than one stage"):
        poptorch.PipelinedExecution("a", ["a", "b"])
    for wrong in ([1], 2):
        with pytest.raises(poptorch.Error):
            poptorch.PipelinedExecution(wrong)
    with pytest.raises(poptorch.Error, match="given together with stages"):
        poptorch.PipelinedExecution("a", poptorch.AutoStage.SameAsIpu)
    with pytest.raises(poptorch.Error):
        poptorch.Stage("a").ipu(-1)


@pytest.mark.parametrize("name", ["ParallelPhasedExecution", "SerialPhasedExecution", "Phase"])
def test_phased_execution_is_named_as_missing(name: str) -> None:
    with pytest.raises(poptorch.Error, match=f"{name}: phased execution is missing"):
        getattr(poptorch, name)("a", "b")


def test_strategies_are_equal_that_give_the_same_places() -> None:
    assert poptorch.PipelinedExecution("a") == poptorch.PipelinedExecution("a")
    assert poptorch.PipelinedExecution("a") != poptorch.PipelinedExecution("b")
    assert poptorch.PipelinedExecution() != poptorch.ShardedExecution()
    assert repr(poptorch.ShardedExecution("a", poptorch.Stage("b").ipu(1))) == (
        "ShardedExecution(Stage('a'), Stage('b').ipu(1))"
    )
