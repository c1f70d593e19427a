"""What the texts of the notebooks say is true of what the notebooks print.

It is read from those that are kept, or with `--notebooks build/notebooks` from those of a folder,
where `make notebooks` has just executed them.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra `notebooks` is not installed")

_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Seen:
    """What a notebook has printed, in order."""

    def __init__(self, notebook: Any) -> None:
        outputs = [each for cell in notebook.cells for each in cell.get("outputs", ())]
        texts = [
            each.get("text") or f"\n{each.get('data', {}).get('text/plain', '')}\n"
            for each in outputs
            if each.get("name") != "stderr"
        ]
        self.text = _COLOUR.sub("", "".join(texts))

    def all(self, pattern: str) -> list[Any]:
        """What each match of a pattern has captured; at least one."""
        found = re.findall(pattern, self.text, re.MULTILINE)
        assert found, f"nothing printed is like {pattern}"
        return found

    def numbers(self, pattern: str) -> list[float]:
        """The numbers that the first match of a pattern has captured."""
        (first, *_) = self.all(pattern)
        captured = (first,) if isinstance(first, str) else first
        return [float(each.replace(",", "")) for each in captured]

    def number(self, pattern: str) -> float:
        """The one number that the first match of a pattern has captured."""
        (found,) = self.numbers(pattern)
        return found

    def after(self, start: str, end: str = "\n\n") -> Seen:
        """What is printed from a text to the end of its paragraph."""
        rest = Seen(nbformat.v4.new_notebook())
        rest.text = self.text[self.text.index(start) :].partition(end)[0]
        return rest


class Read(Protocol):
    def __call__(self, number: str) -> Seen: ...


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Read:
    """Reads the outputs of the notebook with a number."""
    folder = Path(request.config.getoption("--notebooks"))

    def read(number: str) -> Seen:
        (path,) = folder.glob(f"{number}_*.ipynb")
        return Seen(nbformat.read(path, as_version=4))

    return read


def test_four_ipus_are_chosen_in_the_orders_that_are_told(seen: Read) -> None:
    listed = seen("01").all(r"^(\w+) +shards 0 to 7 are IPUs \((.*)\)")
    orders = {name: ipus.split(", ") for name, ipus in listed}
    numbering = orders["ZIGZAG"]
    assert orders["SNAKE"] == [numbering[i] for i in (0, 1, 3, 2, 4, 5, 7, 6)]
    assert orders["HOOF"] == [numbering[i] for i in (0, 2, 4, 6, 7, 5, 3, 1)]
    assert orders["AUTO"] == orders["SNAKE"]
    stands = seen("01").all(r"IPU (\d) stands on JAX device (\d)")
    assert [ipu for ipu, _ in stands] == orders["SNAKE"][:4]
    assert [device for _, device in stands] == ["0", "1", "2", "3"]


def test_a_graph_over_four_ipus_gives_the_numbers_of_jax(seen: Read) -> None:
    graph = seen("01")
    assert graph.after("program graph").text.count("execute") == 1
    for name in ("over four IPUs:", "plain jax.jit: ", "replay", "fused"):
        assert graph.numbers(rf"^{name} \[ *([\d.]+) +([\d.]+) *\]") == [4, 14]
    gradient = graph.after("program gradient")
    assert [ipu for ipu, _ in groupby(gradient.all(r"execute ipu (\d)"))] == ["0", "1", "0"]
    assert len(gradient.all("copy ipu 0 -> ipu 1")) == len(gradient.all("copy ipu 1 -> ipu 0")) == 1
    assert all(float(apart) < 1e-6 for apart in graph.all(r"furthest from plain JAX (\S+)"))


def test_replicas_fill_the_device_and_what_does_not_fit_is_refused(seen: Read) -> None:
    census = seen("01").all(r"^ *(\d+) IPUs: program census: (\d) replicas? of 2 .* = (\d+)$")
    for ipus, replicas, total in (map(int, each) for each in census):
        assert replicas == ipus // 2
        assert total == replicas * (replicas + 1) // 2
    assert "auto_select_ipus = 4" in seen("01").text


def test_a_loop_learns_while_its_losses_are_read(seen: Read) -> None:
    loops = seen("02")
    assert len(loops.all(r"carry ipu 0: %\d+ float32\[64,64\]")) == 3
    assert len(loops.all(r"carry ipu 1: %\d+ float32\[64,10\]")) == 3
    live, losses = loops.numbers(r"(\d+) of (\d+) losses came while")
    assert losses == 600
    assert live > 0
    falling = [float(loss) for loss in loops.all(r"^step +\d+  loss (\S+)")]
    assert falling[-1] < falling[0] / 2
    assert loops.number(r"after training: ([\d.]+)%") > 90


def test_nothing_is_lost_when_the_data_ends(seen: Read) -> None:
    loops = seen("02")
    assert loops.numbers(r": (\d+) elements were asked for, .* ended after (\d+)") == [100, 88]
    count, first, last = loops.numbers(r"^(\d+) losses, (\S+) -> (\S+)")
    assert (count, last < first) == (88, True)
    more, before, after = loops.numbers(r"(\d+) losses more, accuracy (\S+)% -> (\S+)%")
    assert (more, after > before) == (212, True)
    assert loops.number(r"Adam has counted (\d+) steps") == 88 + 212


def test_replicas_learn_as_one_device_with_their_batches(seen: Read) -> None:
    loops = seen("02")
    assert loops.numbers(r"losses: \((\d+), (\d+)\)") == [150, 4]
    assert len(set(loops.numbers(r"first step's: \[(\S+) (\S+) (\S+) (\S+)\]"))) == 4
    assert loops.number(r"^accuracy: (\S+)%") > 90
    assert loops.number(r"largest difference in twenty steps: (\S+)") < 1e-4


def test_a_program_prints_and_visits_the_host(seen: Read) -> None:
    loops = seen("02")
    assert loops.all(r"^x: (\S+)") == ["4.0", "2.0", "1.0"]
    visit = loops.after("program with_a_visit_to_the_host").text
    steps = [line.strip().partition(":")[0] for line in visit.splitlines()]
    at = steps.index("host-call visit")
    assert (steps[at - 1], steps[at + 1]) == ("copy ipu 0 -> host", "copy host -> ipu 0")
    assert loops.numbers(r"^\[(\d)\. (\d)\. (\d)\.\]") == [3, 5, 7]
    assert loops.all(r"cannot return to the host")


def test_equations_are_placed_by_the_rules_that_are_told(seen: Read) -> None:
    inside = seen("03")
    assert inside.all(r"nobody reads (.*)") == ["integer_pow reduce_sum"]
    assert inside.all(r" transpose\(jvp\(ipu_shard\[0\]\)\) ")
    placed = inside.all(r"^(\w+) +(\w+ward) +mark (.)  ->  IPU (\d)")
    by_name: dict[tuple[str, str], str] = {}
    for name, direction, mark, home in placed:
        by_name[name, direction] = by_name.get((name, direction), "") + home
        assert mark in ("-", home)
    assert by_name["sin", "forward"] == by_name["cos", "forward"] == "0"
    assert by_name["sub", "forward"] == by_name["dot_general", "forward"] == "01"
    assert by_name["dot_general", "backward"] == "110"


def test_copies_lead_where_values_are_read(seen: Read) -> None:
    inside = seen("03")
    assert inside.all(r"^IPU (\d) -> IPU (\d): \S") == [("0", "1"), ("1", "0")]
    by_hand = inside.after("program gradient").text
    assert "copy" not in by_hand
    assert inside.all(r"execute reads %\d+ on ipu \d: not there")
    assert inside.all("as by hand: True")
    assert inside.all("one kernel before: False and after: True")


def test_loops_and_branches_are_placed_like_functions(seen: Read) -> None:
    inside = seen("03")
    assert inside.all(r"^(\w+) -> IPU (\d)$") == [("scan", "1")]
    assert inside.all(r"in its body: (\w+) -> IPU (\d)") == [("sin", "0"), ("cos", "1")]
    assert inside.all("the scan itself: None")
    assert inside.all(r"the carry and the stack are on IPUs \(1, 0\)")
    loop = inside.after("program over_two_ipus").text
    assert "carry ipu 1" in loop
    assert "stack ipu 0" in loop
    branches = inside.all(r"^branch (\d): (.*); its result is on IPU (\d)")
    assert branches == [("0", "neg -> IPU 1", "1"), ("1", "sin -> IPU 0, mul -> IPU 1", "1")]


def test_collectives_are_known_when_replicas_are(seen: Read) -> None:
    inside = seen("03")
    one, four = (
        inside.after(f"program weighted_total: {replicas}", "\n\n").text
        for replicas in ("1 replica", "4 replicas")
    )
    assert "psum" not in one
    assert "axis_index" not in one
    assert "psum" in four
    assert "axis_index" in four
    assert inside.all("groups of 3 replicas in a program of 4")


def test_a_language_model_learns_in_a_pipeline(seen: Read) -> None:
    model = seen("04")
    assert model.all(r"^repeat (\d+)") == ["160", "8"]
    assert model.all(r"^task (forward|backward)") == ["forward"] * 4 + ["backward"] * 4
    entropy = model.number(r"entropy of a character by itself: (\S+)")
    first, last = model.numbers(r"^loss (\S+) -> (\S+) nats")
    assert first > entropy > last + 0.5
    assert model.number(r"text that it has not seen: (\S+)") < entropy - 0.3
    assert model.all(r"device_mapping=\[0, 1, 2, 0\]")
    assert model.all(r"8 micro-batches: all \d+ arrays agree")
    (tied,) = model.all(r"^losses: \[(.*)\]")
    losses = [float(loss) for loss in tied.split()]
    assert losses[-1] < losses[0] - 0.3


def test_more_micro_batches_fill_and_recomputation_saves(seen: Read) -> None:
    model = seen("04")
    idle = dict(model.all(r"idle: (\d+)% with (\d+)"))
    assert idle == {"50": "8", "11": "64"}
    waiting = model.all(r"^stage \d: +(\S+) MiB wait, +(\S+) with recomputation")
    kept, recomputed = (sum(map(float, each)) for each in zip(*waiting, strict=True))
    assert recomputed < kept / 10


def test_schedules_differ_in_bubbles_and_not_in_numbers(seen: Read) -> None:
    every = seen("05")
    rows = every.all(r"^(\w[\w -]*?) +\d +\d+ +(\d+)% +\d+  \((.*)\)$")
    bubble = {name: int(share) for name, share, _ in rows}
    waiting = {name: flight for name, _, flight in rows}
    assert bubble["sequential"] > bubble["gpipe"] > bubble["zero-bubble"]
    assert waiting["gpipe"] == "8, 8, 8, 8"
    assert waiting["1f1b"] == "4, 3, 2, 1"
    assert waiting["in pairs"] == "2, 2, 2, 2"
    runs = every.all(r"losses (.*), parameters within (\S+) of sequential")
    losses = [[float(loss) for loss in run.split()] for run, _ in runs]
    assert len(runs) == len(rows) == 8
    assert all(own == pytest.approx(losses[0], rel=2e-4) for own in losses)
    assert losses[0][-1] < losses[0][0] / 2
    assert all(float(apart) < 1e-4 for _, apart in runs)


def test_wrong_schedules_and_wrong_factors_are_found(seen: Read) -> None:
    every = seen("05")
    assert every.all(r"`impatient` gave is no schedule .* deadlock after \d ticks")
    assert every.all(r"6 micro-batches in the grouped schedule: .* must be a multiple of 8")
    assert len(every.all(r"8 micro-batches: all \d+ arrays agree")) == 2
    assert every.all("all gradients are 8 times the reference's")


def test_each_change_does_what_the_report_promised(seen: Read) -> None:
    report = seen("06")
    assert report.all(r"^Out of memory: [^\n]*\n  where: IPU 3")
    shares = report.all(r"^  (\w+) +(\S+) MB$")
    assert max(shares, key=lambda each: float(each[1]))[0] == "variables"
    assert max(report.numbers(r"fullest tiles: (\d+)% (\d+)% (\d+)% (\d+)%")) < 100
    before, after = report.numbers(r"^cycles: (\S+) -> (\S+)")
    assert after < before
    assert report.numbers(r"grid: (\d+)% -> (\d+)%") == [50, 20]
    throughput = report.all(r"elements a second: (\S+) -> (\S+)")
    ratios = [float(b.replace(",", "")) / float(a.replace(",", "")) for a, b in throughput]
    assert [ratio > least for ratio, least in zip(ratios, (1.4, 1.2, 2), strict=True)] == [True] * 3
    assert report.all("it fits: True")


def test_what_is_faster_learns_the_same(seen: Read) -> None:
    before, after = (
        seen("06").numbers(rf"^{name} +" + " ".join([r"(\d\.\d+)"] * 6))
        for name in ("before", "after")
    )
    assert after == pytest.approx(before, rel=0.05)
    assert after[-1] < after[0] / 2


def test_lines_of_digits_are_read(seen: Read) -> None:
    lines = seen("07")
    assert lines.number(r"mean loss of the last fifty steps: (\S+)") < 1
    assert lines.number(r"unseen digits without a mistake: (\S+)%") > 60
    assert lines.number(r"rounded to the nearest: (\S+)") == 0.25
    assert lines.number(r"stochastically: +(\S+),") == pytest.approx(0.35, rel=0.01)


def test_estimators_learn_restore_and_serve(seen: Read) -> None:
    digits = seen("08")
    epochs = digits.all(r"^epoch +\d+: accuracy (\S+)%")
    assert len(epochs) == 12
    assert float(epochs[-1]) > 90
    assert digits.number(r"^ckpt-(\d+)") == digits.number(r"steps seen: (\d+)") > 0
    predicted = digits.all(r"^it is \d, predicted (\d) \((?:\d+)%\)")
    (served,) = digits.all(r"^served: \[(.*)\]")
    assert served.split() == predicted
    assert digits.number(r"micro-batches: accuracy (\S+)%") > 80


def test_a_residual_network_learns_and_fits(seen: Read) -> None:
    (*_, last) = seen("09").all(r"^step \d+: accuracy (\S+)%")
    assert float(last) > 85
    assert seen("09").all(r"^Fits: the fullest tile")


def test_keras_has_the_same_numbers_in_a_scope(seen: Read) -> None:
    keras = seen("10")
    assert keras.all("the same history: True")
    assert keras.all("the same weights: True")
    assert keras.number(r"pictures that were not trained on: accuracy (\d+)%") > 40
    ways = keras.all(r"^loss (\S+), accuracy (\S+)%")
    losses, accuracies = ([float(each) for each in column] for column in zip(*ways, strict=True))
    assert len(ways) == 4
    assert losses == pytest.approx([losses[0]] * 4, rel=0.03)
    assert accuracies == pytest.approx([accuracies[0]] * 4, abs=1)
    assert min(accuracies) > 90
    assert keras.number(r"digits that were not trained on: accuracy (\S+)%") > 90


def test_poptorch_has_the_losses_of_pytorch(seen: Read) -> None:
    digits = seen("11")
    ours = digits.number(r"Accuracy on test set: (\S+)%")
    assert ours > 80
    assert digits.number(r"Accuracy of PyTorch itself: (\S+)%") == pytest.approx(ours, abs=1.5)
    apart = dict(digits.all(r"^(\w[\w ]*): at most (\S+) from PyTorch"))
    assert set(apart) == {"PyTorch", "one batch", "accumulation", "replicas", "pipeline"}
    assert all(float(each) < 1e-3 for each in apart.values())


def test_bert_learns_over_four_ipus_what_it_learns_in_pytorch(seen: Read) -> None:
    bert = seen("12")
    first, last = bert.numbers(r"^loss (\S+) -> (\S+)")
    assert last < 0.5 * first
    assert bert.number(r"largest difference: (\S+) in 20 updates") < 1e-3
    assert bert.all(r"micro-batches")


def test_popart_learns_and_agrees_with_onnx(seen: Read) -> None:
    graphs = seen("13")
    assert graphs.number(r"2 \+ 3 = \[?([\d.]+)") == 5
    learned = graphs.numbers(r"learned \[ *(\S+) +(\S+) +(\S+) *\] of")
    assert learned == pytest.approx([1, -2, 0.5], abs=1e-2)
    first, last = graphs.numbers(r"^loss (\S+) -> (\S+)")
    assert last < 0.3 * first
    assert graphs.number(r"^right: (\S+)%") > 90
    assert graphs.number(r"furthest from ONNX: (\S+)") < 1e-4


def test_processes_learn_what_one_learns(seen: Read) -> None:
    processes = seen("14")
    assert len(processes.all(r"instance (\d): \d+ batches")) == 5
    assert min(map(float, processes.all(r"batches, (\S+)% right"))) > 90
    apart = processes.all(r"largest difference of (a loss|a weight|losses|weights): (\S+)")
    assert [name for name, _ in apart] == ["a loss", "a weight", "losses", "weights"]
    assert max(float(each) for _, each in apart) < 1e-3


def test_eight_devices_learn_what_one_learns(seen: Read) -> None:
    gpt = seen("15")
    (_, _), (first, last) = gpt.all(r"^loss (\S+) -> (\S+)")
    assert float(last) < float(first) - 1
    few, many = gpt.numbers(r"largest difference of a loss: (\S+) in 3 updates, (\S+) in all")
    assert few < 5e-6
    assert many < 5e-4
    assert gpt.number(r"relative difference of the parameters: (\S+)") < 1e-3


def test_each_device_holds_its_stage_alone(seen: Read) -> None:
    gpt = seen("15")
    whole, most = gpt.numbers(r"all state: (\d+) KiB; on the device that has most: (\d+)")
    assert most < 0.4 * whole
    held = gpt.all(r"^block (\d): \d+ arrays, all on devices \[(\d), (\d)\]")
    assert held == [(str(i), str(2 * i), str(2 * i + 1)) for i in range(4)]
    meshes = gpt.all(r"of cpu:(\d)\.\.(\d)")
    assert meshes == [(str(2 * i), str(2 * i + 1)) for i in range(4)]


def test_plans_are_what_the_texts_say(seen: Read) -> None:
    cuts = seen("16")
    assert cuts.number(r"^(\d+) segments; between two of them pass") > 24 * 4  # of 24 layers
    plans = cuts.all(r"^ ?(\d+) IPUs: \w+ of (\d+) stages.*fits: (\w+), .* most (\d+)% above")
    assert [(ipus, fits) for ipus, _, fits, _ in plans] == [
        ("4", "True"),
        ("8", "True"),
        ("16", "True"),
    ]
    four, eight, sixteen = (int(gap) for _, _, _, gap in plans)
    assert max(four, eight) < 10
    assert sixteen < 50  # the search has four seconds
    _, eight, sixteen = cuts.numbers(r"as on four IPUs: \{4: (\S+), 8: (\S+), 16: (\S+)\}")
    assert 1 < eight < sixteen < 5  # with more memory there are better schedules
    held, slower = cuts.numbers(r"fullest IPU holds (\d+)% of before; .* (\S+) x the time")
    assert held <= 60
    assert slower > 1


def test_plans_change_no_number_and_are_for_one_function(seen: Read) -> None:
    cuts = seen("16")
    assert cuts.all(r"differ by less than \S+: (\w+)") == ["True", "True"]
    assert cuts.all(r"(no plan fits in memory) - the nearest has 8 stages")
    assert cuts.all(r"^the plan was (made for another function)")


def test_tutorials_of_poplar_compute_what_numpy_does(seen: Read) -> None:
    poplar = seen("17")
    differences = [float(each) for each in poplar.all(r"largest difference from NumPy: (\S+)")]
    assert len(differences) == 4
    assert max(differences) < 1e-4
    assert poplar.all(r"^(copy 'Copy' reads element 0 of 'v3', which nothing has written)")
    before, after = poplar.numbers(r"mass before and after: (\S+), (\S+)")
    assert before == pytest.approx(after, rel=1e-5)


def test_cycles_of_tiles_are_near_published_ones(seen: Read) -> None:
    poplar = seen("17")
    assert poplar.all(r"^ipu\d: worst (\S+),") == ["64,373", "53,807"]
    pairs = poplar.all(r"^ +(?:64|128|256|512) +(\S+) +(\S+)$")
    assert len(pairs) == 4
    for measured, modelled in pairs:
        assert _number(modelled) == pytest.approx(_number(measured), rel=0.03)
    step, compute, exchange = poplar.numbers(
        r"^(\d+) cycles a step: (\d+) compute and sync, (\d+) exchange"
    )
    assert step == compute + exchange
    # A block of 8 x 8 points needs 36 around it; 6 cycles a point, a launch and a sync.
    assert compute == 20 + 6 * 64 + 11 + 100
    assert poplar.number(r"a tile receives at most (\d+) bytes") == 4 * 36


def _number(text: str) -> float:
    return float(text.replace(",", ""))
