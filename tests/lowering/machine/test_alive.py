"""The account of what is alive, against one that keeps every tensor of every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine import map_linearly
from lowering.machine.kernels import (
    KernelMemory,
    LivenessRecord,
    LiveTensor,
    MemoryEvent,
    MemoryTracker,
    TensorLayout,
    TileMemoryTracker,
    compute_kernel_liveness,
)

TILES = 5


def tensor(elements: int, first_tile: int = 0, name: str = "t") -> LiveTensor:
    mapping = map_linearly(elements, 4, TILES, minimum_bytes=8).start_at_tile(first_tile)
    return LiveTensor(name, "test", "", TensorLayout(mapping))


def held(live: LiveTensor) -> np.ndarray:
    return live.laid.mapping.bytes_per_tile()


def lived(sizes: list[int], space: int = 0) -> LivenessRecord:
    """Tensors that come one by one, and go together; work space on two tiles at the last step."""
    inner = MemoryTracker(TILES)
    for i, size in enumerate(sizes):
        inner.add_tensor(i, tensor(size, name=f"inner {i}"))
        inner.record_step(f"inner step {i}", "f.py:1", space if i == len(sizes) - 1 else 0, 2)
    return inner.finish_record()


tensors = st.builds(tensor, st.integers(0, 60), st.integers(0, TILES - 1))
inner = st.builds(lived, st.lists(st.integers(0, 30), max_size=3), st.integers(0, 20))
steps = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), tensors),
    st.tuples(st.just("drop"), st.integers(0, 5), st.none()),
    st.tuples(st.just("rename"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("work"), st.integers(0, 40), st.integers(0, TILES)),
    st.tuples(st.just("inner"), st.integers(0, 5), inner),
)


def per_tile(lives) -> np.ndarray:
    return sum(map(held, lives), np.zeros(TILES, np.int64))


def names_at(account: LivenessRecord, step: int) -> list[str]:
    return sorted(live.name for live in account.tensors_alive_at(step))


@pytest.mark.parametrize("tracker", [MemoryTracker, TileMemoryTracker])
@given(st.lists(steps, max_size=30))
def test_memory_against_every_step(tracker, steps):
    memory = tracker(TILES)
    alive: dict[int, LiveTensor] = {}
    seen: list[list[LiveTensor]] = []  # at every step
    spaces: list[np.ndarray] = []

    def happens(lives, space):
        seen.append(list(lives))
        spaces.append(space)

    for what, key, detail in steps:
        match what:
            case "add":
                alive[key] = detail
                memory.add_tensor(key, detail)
            case "drop":
                alive.pop(key, None)
                memory.drop_tensor(key)
            case "rename":
                if key in alive and detail not in alive:
                    heir = tensor(1, name="heir")
                    alive[detail] = heir._replace(laid=alive.pop(key).laid)
                    memory.hand_over_memory(key, detail, heir)
            case "work":
                happens(alive.values(), np.where(np.arange(TILES) < detail, key, 0))
                memory.record_step("work", "f.py:2", key, detail)
            case _:
                for i in range(len(detail.bytes)):
                    space = np.where(np.arange(TILES) < detail.space_tiles[i], detail.space[i], 0)
                    happens([*alive.values(), *detail.tensors_alive_at(i)], space)
                if not detail.tensors:
                    memory.record_body(detail)
                    continue
                live = detail.tensors[0]._replace(name="left")
                memory.record_body(detail, {0: (("left", key), live)})
                for before in seen[-len(detail.bytes) :]:  # its life is one
                    before[before.index(detail.tensors[0])] = live
                alive["left", key] = live
    found = memory.finish_record()
    peaks = [per_tile(lives) + space for lives, space in zip(seen, spaces, strict=True)]
    totals = [int(peak.sum()) for peak in peaks]
    assert found.bytes.tolist() == totals
    assert found.temporary_bytes.tolist() == [int(space.sum()) for space in spaces]
    assert found.peak_bytes_of_all_tiles == max(totals, default=0)
    np.testing.assert_array_equal(found.tile_peak_bytes, np.max([*peaks, np.zeros(TILES)], axis=0))
    for i, lives in enumerate(seen):
        assert names_at(found, i) == sorted(live.name for live in lives)
    assert found.step_of_peak_memory == (totals.index(max(totals)) if totals else 0)
    assert len(found.names) == len(found.origins) == len(found.bytes)


def test_a_second_tensor_of_a_name_takes_the_firsts_place():
    memory = MemoryTracker(TILES)
    memory.add_tensor("a", tensor(10))
    memory.add_tensor("a", tensor(20))
    memory.record_step("one")
    memory.drop_tensor("a")
    memory.add_tensor("b", tensor(5))
    memory.record_step("two")
    assert memory.finish_record().bytes.tolist() == [80, 20]


def test_dropping_what_is_not_there_changes_nothing():
    memory = MemoryTracker(TILES)
    memory.drop_tensor("a")
    memory.hand_over_memory("a", "b", tensor(3))
    memory.record_step("one")
    assert memory.finish_record().peak_bytes_of_all_tiles == 0
    assert memory.finish_record().tensors == ()


def test_who_takes_over_memory_lives_on_from_there():
    memory = MemoryTracker(TILES)
    memory.add_tensor("a", tensor(10, name="old"))
    memory.record_step("one")
    memory.hand_over_memory("a", "b", tensor(10, first_tile=3, name="new"))
    memory.record_step("two")
    found = memory.finish_record()
    assert [live.name for live in found.tensors] == ["old", "new"]
    assert (found.first.tolist(), found.last.tolist()) == ([0, 1], [0, 1])
    assert found.bytes.tolist() == [40, 40]
    assert found.tensors[1].laid == found.tensors[0].laid  # it lies where the other one did


@pytest.mark.parametrize(("old", "new"), [("variables", "variables"), ("constants", "activations")])
def test_memory_of_a_variable_stays_a_variables(old, new):
    memory = MemoryTracker(TILES)
    memory.add_tensor("a", tensor(10)._replace(category=old))
    memory.record_step("one")
    memory.hand_over_memory("a", "b", tensor(10))
    memory.record_step("two")
    assert memory.finish_record().tensors[1].category == new


# --- kernels --------------------------------------------------------------------------------------


@st.composite
def kernels(draw):
    """Events that read operands (0 and 1) or what was born before, and may work in place."""
    events: list[MemoryEvent] = []
    sizes = {0: 8, 1: 8}
    for new in range(2, draw(st.integers(3, 12))):
        reads = tuple(draw(st.lists(st.sampled_from(sorted(sizes)), max_size=3)))
        sizes[new] = draw(st.sampled_from([8, 8, 12]))
        heirs = tuple(owner for owner in reads if sizes[owner] == sizes[new])
        in_place = {new: heirs} if draw(st.booleans()) else {}
        events.append(MemoryEvent(reads, {new: tensor(sizes[new])}, 10, 2, in_place=in_place))
    results = draw(st.lists(st.sampled_from(sorted(sizes)), min_size=1, max_size=3, unique=True))
    away = draw(st.sets(st.sampled_from([0, 1])))
    return events, results, away, sizes


def naive(events, results, away, sizes):
    """Buffers with sets of names; the operands' are given and cost nothing."""
    buffer_of = {0: "operand 0", 1: "operand 1"}
    most = 0
    peak = np.zeros(TILES, np.int64)
    for i, event in enumerate(events):
        later = {o for e in events[i + 1 :] for o in e.reads} | set(results)
        (new,) = event.births
        buffer = f"own {new}"
        for owner in event.in_place.get(new, ()):
            needed = owner in later or (owner in (0, 1) and owner not in away)
            if not needed and buffer_of[owner] not in {
                buffer_of[o] for o in later if o in buffer_of and o != owner
            }:
                buffer = buffer_of.pop(owner)
                break
        buffer_of[new] = buffer
        needed_now = {o for o in buffer_of if o in later or o in event.reads or o == new}
        own = {buffer_of[o]: o for o in needed_now if buffer_of[o].startswith("own")}
        bytes_ = sum(4 * sizes[o] for o in own.values())
        most = max(most, bytes_ + 20)
        now = sum((held(tensor(sizes[o])) for o in own.values()), np.zeros(TILES, np.int64))
        now[:2] += 10
        peak = np.maximum(peak, now)
        buffer_of = {o: b for o, b in buffer_of.items() if o in later}
    return most, peak, {o: buffer_of.get(o, f"operand {o}") for o in results}


@given(kernels())
def test_kernels_against_buffers_with_names(kernel):
    events, results, away, _ = kernel
    most, peak, buffers = naive(*kernel)
    found, taken = compute_kernel_liveness(events, [0, 1], results, TILES, away)
    assert found.peak_bytes_of_all_tiles == most
    np.testing.assert_array_equal(found.tile_peak_bytes, peak)
    for result in results:
        operand = taken.get(result, result if result < 2 else None)
        want = f"operand {operand}" if operand is not None else None
        assert buffers[result] == want or (want is None and buffers[result].startswith("own"))


@given(kernels())
def test_giving_operands_away_never_costs(kernel):
    events, results, _, _ = kernel
    life = KernelMemory(events, [0, 1], results, TILES)
    kept, _ = life.liveness_with_donated(frozenset())
    for away in ({0}, {1}, {0, 1}):
        found, in_place = life.liveness_with_donated(frozenset(away))
        assert (found.tile_peak_bytes <= kept.tile_peak_bytes).all()
        taken = [i for i, r in zip(in_place, results, strict=True) if i is not None and r != i]
        assert set(taken) <= away
    assert life.liveness_with_donated(frozenset()) is life.liveness_with_donated(frozenset())


@pytest.mark.parametrize(("away", "bytes_", "in_place"), [((), 32, (None,)), ((0,), 0, (0,))])
def test_a_result_in_place(away, bytes_, in_place):
    life = KernelMemory([MemoryEvent((0,), {1: tensor(8)}, in_place={1: (0,)})], [0], [1], TILES)
    found, taken = life.liveness_with_donated(frozenset(away))
    assert (found.peak_bytes_of_all_tiles, taken) == (bytes_, in_place)
