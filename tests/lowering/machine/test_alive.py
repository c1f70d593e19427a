"""The account of what is alive, against one that keeps every tensor of every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine.kernels.alive import Alive, Event, Life, Live, Memory, account, worst
from lowering.machine.kernels.layouts import Laid
from lowering.machine.mapping import linear

TILES = 5


def tensor(elements: int, first_tile: int = 0, name: str = "t") -> Live:
    mapping = linear(elements, 4, TILES, minimum_bytes=8).moved_to(first_tile)
    return Live(name, "test", None, Laid(mapping))


def held(live: Live) -> np.ndarray:
    return live.laid.mapping.bytes_per_tile()


def lived(peaks: list[int], activations: int, temporary: int = 0) -> Alive:
    return Alive(
        tile_peak_bytes=np.array(peaks),
        activation_bytes=activations,
        temporary_bytes=temporary,
        tensors=(tensor(activations // 4, name="inner"),),
    )


tensors = st.builds(tensor, st.integers(0, 60), st.integers(0, TILES - 1))
inner = st.builds(lived, st.lists(st.integers(0, 99), min_size=TILES, max_size=TILES), st.just(40))
steps = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), tensors),
    st.tuples(st.just("drop"), st.integers(0, 5), st.none()),
    st.tuples(st.just("rename"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("work"), st.integers(0, 40), st.integers(0, TILES)),
    st.tuples(st.just("inner"), st.just(0), inner),
)


@given(st.lists(steps, max_size=30))
def test_memory_against_every_step(steps):
    memory = Memory(TILES)
    alive: dict[int, Live] = {}
    peaks, totals = [np.zeros(TILES, np.int64)], [0]
    for what, key, detail in steps:
        now = sum((held(live) for live in alive.values()), np.zeros(TILES, np.int64))
        match what:
            case "add":
                alive[key] = detail
                memory.add(key, detail)
            case "drop":
                alive.pop(key, None)
                memory.drop(key)
            case "rename":
                if key in alive and detail not in alive:
                    alive[detail] = alive.pop(key)
                    memory.rename(key, detail)
            case "work":
                extra = np.where(np.arange(TILES) < detail, key, 0)
                memory.work(key, detail)
                peaks.append(now + extra)
                totals.append(now.sum() + key * detail)
            case _:
                memory.work(inner=detail)
                peaks.append(now + detail.tile_peak_bytes)
                totals.append(now.sum() + detail.most_bytes)
    found = memory.result()
    np.testing.assert_array_equal(found.tile_peak_bytes, np.max(peaks, axis=0))
    assert found.most_bytes == max(totals)
    assert found.activation_bytes == sum(t.laid.mapping.total_bytes for t in found.tensors)


def test_a_second_tensor_of_a_name_takes_the_firsts_place():
    memory = Memory(TILES)
    memory.add("a", tensor(10))
    memory.add("a", tensor(20))
    memory.work()
    memory.drop("a")
    memory.add("b", tensor(5))
    memory.work()
    assert memory.result().most_bytes == 80


def test_dropping_what_is_not_there_changes_nothing():
    memory = Memory(TILES)
    memory.drop("a")
    memory.rename("a", "b")
    memory.work()
    assert memory.result().most_bytes == 0
    assert memory.result().tensors == ()


def test_the_worst_of_several():
    """The tensors of the one that needs most, and for each tile the most of all."""
    found = worst([lived([1, 9, 0, 0, 0], 8), lived([5, 2, 0, 0, 7], 80, 4)])
    assert found.tile_peak_bytes.tolist() == [5, 9, 0, 0, 7]
    assert (found.activation_bytes, found.temporary_bytes) == (80, 4)


# --- kernels --------------------------------------------------------------------------------------


@st.composite
def kernels(draw):
    """Events that read operands (0 and 1) or what was born before, and may work in place."""
    events: list[Event] = []
    sizes = {0: 8, 1: 8}
    for new in range(2, draw(st.integers(3, 12))):
        reads = tuple(draw(st.lists(st.sampled_from(sorted(sizes)), max_size=3)))
        sizes[new] = draw(st.sampled_from([8, 8, 12]))
        heirs = tuple(owner for owner in reads if sizes[owner] == sizes[new])
        in_place = {new: heirs} if draw(st.booleans()) else {}
        events.append(Event(reads, {new: tensor(sizes[new])}, 10, 2, in_place=in_place))
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
    found, taken = account(events, [0, 1], results, TILES, away)
    assert found.most_bytes == most
    np.testing.assert_array_equal(found.tile_peak_bytes, peak)
    for result in results:
        operand = taken.get(result, result if result < 2 else None)
        want = f"operand {operand}" if operand is not None else None
        assert buffers[result] == want or (want is None and buffers[result].startswith("own"))


@given(kernels())
def test_giving_operands_away_never_costs(kernel):
    events, results, _, _ = kernel
    life = Life(events, [0, 1], results, TILES)
    kept, _ = life.giving(frozenset())
    for away in ({0}, {1}, {0, 1}):
        found, in_place = life.giving(frozenset(away))
        assert (found.tile_peak_bytes <= kept.tile_peak_bytes).all()
        taken = [i for i, r in zip(in_place, results, strict=True) if i is not None and r != i]
        assert set(taken) <= away
    assert life.giving(frozenset()) is life.giving(frozenset())


@pytest.mark.parametrize(("away", "bytes_", "in_place"), [((), 32, (None,)), ((0,), 0, (0,))])
def test_a_result_in_place(away, bytes_, in_place):
    life = Life([Event((0,), {1: tensor(8)}, in_place={1: (0,)})], [0], [1], TILES)
    found, taken = life.giving(frozenset(away))
    assert (found.most_bytes, taken) == (bytes_, in_place)
