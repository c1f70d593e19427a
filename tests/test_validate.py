"""`python -m validation`: what it reads, expresses, skips and prints."""

from __future__ import annotations

import dataclasses as dc
import json
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering.machine import IPU1, IPU2, IPU21
from validation import FAMILIES, finite_differences, inference, predict, stencil, throughput
from validation import __main__ as validate
from validation.models import bert, efficientnet, resnet, training, vit
from validation.models.variables import Variables, shapes, stage_shapes, struct
from validation.row import BrokenRowError, Prediction, Row, SkipError, parse, target_of

BOW = "Bow, 1 IPU, 1472 tiles, 1.85 GHz"
GC2 = "GC2 Mk1, {} IPU(s), 1.6 GHz"
EMULATOR = "IPUModel, 1472 tiles, compile_ipu_code False (True"
PROFILE = "Mk2-generation profile (1472 tiles)"


def row(workload: dict[str, Any], hardware: str = BOW, unit: str = "cycles", **more: Any) -> Row:
    """A row that measured 1."""
    data = {"id": "a", "hardware": hardware, "workload": workload, "measured": 1.0}
    return parse(json.dumps({**data, "unit": unit, "kind": "hw", **more}))


# --- rows and units -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"hardware": "Bow", "unit": "s", "kind": "hw", "measured": 1}', "'workload' is missing"),
        (
            '{"hardware": "Bow", "workload": {}, "unit": "s", "kind": "hw", "measured": 0}',
            "'measured' is missing, or not a positive number",
        ),
    ],
)
def test_broken_lines_say_what_is_wrong(line: str, problem: str) -> None:
    with pytest.raises(BrokenRowError, match=re.escape(problem)):
        parse(line)


@pytest.mark.parametrize(
    ("hardware", "target", "clock"),
    [
        (BOW, IPU21, 1.85e9),
        ("Bow Pod16", IPU21, 1.85e9),
        ("M2000 POD16 (GC200 1.33 GHz)", IPU2, 1.33e9),
        ("IPUModel Mk2", IPU2, 1.33e9),
        ("GC2 Mk1, 16 IPU(s), 1.5 GHz", IPU1, 1.5e9),
        ("C600, 1 IPU Mk2, 185 W card", IPU21, 280e12 / 188_416),  # 1472 tiles of 128 operations
        ("IPUModel (simulator), GC2 defaults", IPU1, 1.6e9),
    ],
)
def test_hardware_names_the_chip_and_its_clock(hardware: str, target: Any, clock: float) -> None:
    found = target_of(hardware)
    assert (found.name, found.clock_hz) == (target.name, clock)


@pytest.mark.parametrize(
    ("words", "partials"),
    [
        ("fp16", "float16"),
        ("half", "float16"),
        ("fp32", "float32"),
        ("float", "float32"),
        ("", None),
    ],
)
def test_partials_are_named_as_the_libraries_name_them(words: str, partials: str | None) -> None:
    assert row({"partials": words}).partials == partials


def test_hardware_without_a_known_chip_is_skipped() -> None:
    with pytest.raises(SkipError, match="no chip"):
        target_of("A100")


@pytest.mark.parametrize(("words", "ipus"), [("Bow Pod64", 64), ("POD128 (Mk2)", 128), (BOW, 1)])
def test_the_number_of_ipus_is_read_from_the_hardware(words: str, ipus: int) -> None:
    assert row({}, words).ipus == ipus


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        ("cycles per iteration", 2e9),
        ("s (average, loop program)", 2.0),
        ("ms", 2000.0),
        ("min", 2 / 60),
        ("TFLOP/s", 2e-12 * 1e12),
        ("items/s", 50.0),
        ("samples/s (as in README)", 50.0),
        ("bytes total", 8.0),
        ("KiB", 8 / 1024),
    ],
)
def test_a_prediction_is_given_in_the_unit_of_the_row(unit: str, value: float) -> None:
    prediction = Prediction(cycles=2e9, flops=4e12, items=100, bytes=8)
    assert prediction.in_unit(unit, 1e9) == pytest.approx(value)


@pytest.mark.parametrize("unit", ["speed-up over dense", "fraction", "x", ""])
def test_unknown_units_are_skipped(unit: str) -> None:
    with pytest.raises(SkipError, match="unknown unit"):
        Prediction(cycles=1).in_unit(unit, 1e9)


def test_quantities_that_a_workload_lacks_are_skipped() -> None:
    with pytest.raises(SkipError, match="no quantity"):
        Prediction(cycles=1).in_unit("bytes", 1e9)


# --- workloads ------------------------------------------------------------------------------------

OTHER_SIZES: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("matmul", BOW, {"op": "dense matmul", "m": 768, "k": 512, "n_batch": 96}, "TFLOP/s", "hw"),
    (
        "matmul",
        "GC200, 1 IPU",
        {"op": "dense matmul", "m": 64, "k": 64, "n_batch": 8, "dtype": "fp32"},
        "us",
        "hw",
    ),
    (
        "vertex",
        BOW,
        {"op": "per-tile matmul, one vertex", "lhs": [48, 32], "rhs": [32, 16], "dtype": "fp16"},
        "TFLOP/s",
        "hw",
    ),
    ("vertex", "C600", {"op": "tile-local copy 4 KiB standard"}, "cycles", "hw"),
    ("vertex", "C600", {"op": "AMP group 32 columns x 128 K, standard"}, "cycles", "hw"),
    ("qr", BOW, {"op": "QR (PopLibs poplin::QR)", "shape": [96, 96]}, "cycles", "hw"),
    (
        "stencil",
        GC2.format(4),
        {
            "op": "hand-written 3x3 Gaussian blur stencil, repeated (2n=40 stencil steps)",
            "width_height": [640, 480],
            "dtype": "half4",
            "ipus": 4,
        },
        "s (average, loop program)",
        "hw",
    ),
    (
        "stencil",
        GC2.format(1),
        {"op": "3x3 stencil step, one iteration, phase exchange", "dtype": "float"},
        "cycles per iteration",
        "hw",
    ),
    ("stencil", GC2.format(2), {"op": "stencil on 1000x800 grid, 32 B/cell", "ipus": 2}, "s", "hw"),
    (
        "finite_differences",
        "4x GC200 Mk2, 1472 tiles/IPU, 1.33 GHz",
        {"op": "2D heat equation, 5-point stencil", "mesh": [900, 700], "iterations": 7, "ipus": 4},
        "TFLOP/s",
        "hw",
    ),
    (
        "finite_differences",
        "2x GC200 Mk2, 1472 tiles/IPU, 1.33 GHz",
        {"op": "3D diffusion, space order 2", "mesh": [90, 80, 70], "iterations": 9, "ipus": 2},
        "s",
        "hw",
    ),
    (
        "inference",
        "C600, 1 IPU Mk2",
        {"model": "resnet50-torch-fp32", "phase": "inference", "precision": "fp8", "batch": 1},
        "samples/s",
        "hw",
    ),
    (
        "stencil_conv",
        GC2.format(2),
        {
            "op": "PopLibs convolution 3x3 used as stencil, n=10",
            "width_height": [320, 200],
            "dtype": "float",
            "availableMemoryProportion": ">=0.4",
        },
        "s",
        "hw",
    ),
    (
        "halo",
        "IPUModel (simulator), GC2 defaults",
        {"op": "halo exchange, block 50x60, 20 iterations, strategy implicit"},
        "cycles total",
        "emulator",
    ),
    ("tutorial", "IPUModel Mk2", {"op": "second matmul reduce step"}, "cycles", "emulator"),
    (
        "tf_sizes",
        EMULATOR,
        {"op": "MLP x[4,1024] then dense 16, 8 + softmax xent, inference, fp16"},
        "bytes",
        "emulator",
    ),
    ("tf_sizes", EMULATOR, {"op": "MLP training, batch 1"}, "bytes", "emulator"),
    ("tf_sizes", EMULATOR, {"op": "ResNet-18-like SGD"}, "bytes", "emulator"),
    ("popliner", PROFILE, {"op": "tiny BERT exchange code"}, "bytes", "compiler"),
    ("popliner", PROFILE, {"op": "BERT-Large layers 0-1 total"}, "bytes", "compiler"),
    ("peaks", "GC200", {"op": "theoretical peak fp16"}, "TFLOP/s", "theoretical"),
    ("peaks", "GC2", {"op": "local memory load bandwidth"}, "TB/s", "hw"),
    ("throughput", "Bow Pod4", {"model": "UNet medical"}, "items/s", "hw"),
]
WHOLE_MODELS = "throughput", "inference"  # the families that take long


@pytest.mark.parametrize(
    ("family", "hardware", "workload", "unit", "kind"),
    [
        pytest.param(*one, marks=pytest.mark.exhaustive) if one[0] in WHOLE_MODELS else one
        for one in OTHER_SIZES
    ],
)
def test_workloads_are_expressed_for_other_sizes(
    family: str, hardware: str, workload: dict[str, Any], unit: str, kind: str
) -> None:
    one = row(workload, hardware, unit, kind=kind)
    found, prediction = predict(one)
    value = prediction.in_unit(one.unit, one.target.clock_hz)
    assert found == family
    assert math.isfinite(value)
    assert value > 0


def test_every_family_is_among_the_other_sizes() -> None:
    assert {family for family, *_ in OTHER_SIZES} == set(FAMILIES)


SERVED = {"phase": "inference", "precision": "fp16", "batch": 1}


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ({"op": "block-sparse matmul static vs dense"}, "block-sparse"),
        ({"op": "folding proteins"}, "no workload of the model is named"),
        ({"op": "dense matmul", "m": 8, "k": 8}, "no positive number 'n_batch'"),
        ({"op": "QR", "shape": [8]}, "two-dimensional"),
        ({}, "no workload of the model is named"),
        ({"op": "2D heat equation"}, "no 'mesh' of two or three sizes"),
        ({"op": "2D heat equation", "mesh": [2, 9], "iterations": 1}, "no points for every IPU"),
        ({"op": "3D diffusion, space order 6", "mesh": [9, 9, 9], "iterations": 1}, "space order"),
        ({**SERVED, "model": "roformer-tf-fp32"}, "the sizes of the model are not said"),
        ({**SERVED, "model": "bert-torch-fp32", "precision": "int8"}, "no inference in int8"),
    ],
)
def test_what_cannot_be_expressed_is_skipped_with_a_reason(
    workload: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SkipError, match=re.escape(reason)):
        predict(row(workload))


def test_inference_is_not_predicted_as_training() -> None:
    served = {**SERVED, "model": "resnet50"}
    assert throughput.predict(row(served, "C600", "samples/s")) is None


@pytest.mark.parametrize("model", ["albert-base", "deberta-large", "BERTology"])
def test_relatives_of_bert_are_not_trained_as_bert(model: str) -> None:
    assert throughput.setup_of(row({"model": model}, "Bow Pod16", "items/s")) is None


@pytest.mark.parametrize(
    ("mesh", "ipus", "smallest", "largest"),
    # What the published runs printed (TszwangKo/FYP_IPU_DEVITO@0908800: 3D_test.log).
    [
        ((360, 360, 360), 1, (15, 44, 44), (16, 45, 45)),
        ((360, 360, 360), 2, (15, 22, 44), (16, 23, 45)),
        ((403, 403, 403), 2, (17, 25, 50), (18, 26, 51)),
    ],
)
def test_a_mesh_is_cut_into_the_boxes_that_the_code_printed(
    mesh: tuple[int, ...], ipus: int, smallest: tuple[int, ...], largest: tuple[int, ...]
) -> None:
    sides = [size - 2 for size in mesh]
    split = finite_differences.split_box((*sides[:-1], sides[-1] // ipus), 1472)
    slab = [*sides[:-1], sides[-1] / ipus]
    assert [math.floor(math.floor(s) / n) for s, n in zip(slab, split, strict=True)] == [*smallest]
    assert [math.ceil(math.ceil(s) / n) for s, n in zip(slab, split, strict=True)] == [*largest]


def test_a_wider_stencil_and_a_slower_link_take_longer() -> None:
    order = finite_differences.DIFFUSION
    steps = [finite_differences.step_cycles([99, 99, 99], order[n], 2, IPU2) for n in (2, 4, 8)]
    assert steps == sorted(steps)
    links = dc.replace(IPU2.links, bytes_per_second=1e9)
    slow = finite_differences.step_cycles([99] * 3, order[2], 2, dc.replace(IPU2, links=links))
    # 99 x 99 float32 over two links
    assert slow - steps[0] == pytest.approx(99 * 99 * 4 * (1.33 / 2 - 1.33 / 26.46), abs=2)


def test_the_largest_part_of_a_stencil_is_not_always_of_the_largest_block() -> None:
    # Blocks of 19x18 are cut into six strips of 19x3, those of 19x17 into strips of 4x17.
    assert stencil.partition(1024, 768, 2, IPU1).part == (4, 17)


def test_larger_products_take_longer_and_use_the_chip_better() -> None:
    sizes = [{"op": "dense matmul", "m": 1024, "k": 1024, "n_batch": n} for n in (16, 256, 4096)]
    found = [predict(row(size))[1] for size in sizes]
    rates = [one.in_unit("TFLOP/s", 1.85e9) for one in found]
    assert [one.cycles for one in found] == sorted(one.cycles or 0 for one in found)
    assert rates == sorted(rates)


# --- published setups -----------------------------------------------------------------------------


def setup_of(hardware: str, **workload: Any) -> throughput.Setup:
    """How a published model is trained."""
    setup = throughput.setup_of(row(workload, hardware, "items/s"))
    assert setup is not None
    return setup


@pytest.mark.parametrize(
    ("model", "batch", "length", "ipus", "stages"),
    [
        ("BERT-Large Phase 1 SL128", 8, 128, 4, 5),
        ("BERT-Large Phase 2 SL384", 2, 384, 4, 5),
        ("BERT-Large Ph2 SL512 packed", 2, 512, 4, 5),
        ("BERT-Base Ph1 SL128", 32, 128, 4, 5),
        ("BERT-Large SQuAD SL384 fine-tune", 4, 384, 8, 9),
    ],
)
def test_bert_is_set_up_as_published(
    model: str, batch: int, length: int, ipus: int, stages: int
) -> None:
    setup = setup_of("Bow Pod16", model=model)
    assert setup.element[0].shape == (batch, length)
    assert (setup.ipus, len(setup.stages)) == (ipus, stages)


@pytest.mark.parametrize(
    ("framework", "popart"),
    [("PopART", True), ("PyTorch SDK3.1", True), ("TF1 SDK3.0", False), ("TensorFlow2", False)],
)
def test_tensorflow_alone_fuses_lines(framework: str, popart: bool) -> None:
    setup = setup_of("Bow Pod16", model="BERT-Large Phase 1 SL128", framework=framework)
    assert setup.popart == popart


@pytest.mark.parametrize(("multiple", "tokens"), [(1, 49), (8, 56)])
def test_swin_pads_its_windows_to_whole_grains(multiple: int, tokens: int) -> None:
    block = dc.replace(vit.SWIN_BASE, multiple=multiple).parts()[1]
    x = struct(jnp.float16, 1, 14, 14, 128)
    found = jax.make_jaxpr(lambda x: block(Variables(jnp.float16), x))(x)
    assert f"f16[4,4,{tokens},{tokens}]" in str(found)  # windows, heads, scores


@pytest.mark.parametrize(
    ("pod", "framework", "model", "proportions"),
    [
        (16, "PyTorch SDK3.1", "BERT-Large Ph1 packed", (0.15, 0.25, 0.25, 0.25, 0.15)),
        (64, "PyTorch", "BERT-Large Ph2 SL512 packed", (0.13, 0.19, 0.19, 0.19, 0.13)),
        (16, "TensorFlow2", "BERT-Large Ph1 SL128", (0.1, 0.19, 0.2, 0.25, 0.1)),
        (16, "PopART", "BERT-Large Ph1 SL128", (0.15, 0.25, 0.25, 0.25, 0.15)),
    ],
)
def test_each_ipu_of_bert_has_its_published_memory_proportion(
    pod: int, framework: str, model: str, proportions: tuple[float, ...]
) -> None:
    """The loss is a stage of its own on the first IPU."""
    assert setup_of(f"Bow Pod{pod}", model=model, framework=framework).proportions == proportions


@pytest.mark.parametrize(("packed", "seen", "hidden"), [(False, 4, 6), (True, 1, 4)])
def test_tokens_attend_to_no_padding_and_packed_ones_to_no_other_sequence(
    packed: bool, seen: int, hidden: int
) -> None:
    sizes = bert.Bert(layers=1, width=16, heads=2, length=8, vocabulary=32, packed=packed)
    tokens = jnp.array([[1, 1, 1, 2, 2, 2, 0, 0]])
    values = shapes(sizes.encoder, jnp.float32, struct(jnp.int32, 1, 8))
    random = np.random.default_rng(0)
    variables = {n: jnp.array(random.normal(size=v.shape), v.dtype) for n, v in values.items()}

    def encode_first(changed: int | None = None) -> Any:
        positions = variables["positions"]
        if changed is not None:
            positions = positions.at[changed, 0].add(1)
        moved = Variables(jnp.float32, {**variables, "positions": positions})
        return sizes.encoder(moved, tokens)[0, 0]

    assert (encode_first(hidden) == encode_first()).all()
    assert (encode_first(seen) != encode_first()).any()


def test_packs_of_questions_are_nearly_full() -> None:
    """First fit wastes little, but no pack holds more than its tokens; questions are 178 long."""
    found = inference.questions_in_a_sequence(40)
    assert 0.9 * inference.LENGTH / 178 < found < inference.LENGTH / 178


def test_packed_sequences_count_more_than_once() -> None:
    assert setup_of("Bow Pod16", model="BERT-Large Ph1 packed").per_example == 1.17


@pytest.mark.parametrize(
    ("pod", "given", "size"), [(16, 3520, 22), (64, 2560, 20), (16, 5632, 22), (256, None, 20)]
)
def test_resnet_takes_micro_batches_that_divide_the_global_batch(
    pod: int, given: int | None, size: int
) -> None:
    setup = setup_of(f"Bow Pod{pod}", model="ResNet-50 v1.5", framework="TF1", global_batch=given)
    assert setup.micro_batch == size
    assert setup.global_batch % (pod * size) == 0


# --- models ---------------------------------------------------------------------------------------

IMAGE = struct(jnp.float16, 1, 224, 224, 3)
LABEL = struct(jnp.int32, 1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("model", "args", "millions"),
    [
        (resnet.RESNET50.loss, (IMAGE, LABEL), 25.56),
        (resnet.RESNEXT101.loss, (IMAGE, LABEL), 44.18),
        (efficientnet.EDGE_L.logits, (IMAGE,), 10.6),
        (vit.SWIN_BASE.loss, (IMAGE, LABEL), 88.0),
        (bert.LARGE.encoder, (struct(jnp.int32, 1, 128),), 333.5),
    ],
)
def test_models_have_as_many_parameters_as_published(
    model: Any, args: tuple[Any, ...], millions: float
) -> None:
    found = shapes(model, jnp.float16, *args)
    assert sum(one.size for one in found.values()) / 1e6 == pytest.approx(millions, rel=0.01)


def test_stages_of_bert_share_the_embedding() -> None:
    sizes = bert.Bert(layers=2, width=32, heads=2, length=8, masked=2, vocabulary=64)
    integers = [struct(jnp.int32, *shape) for shape in ((1, 8), (1, 2), (1,))]
    found = stage_shapes(sizes.stages((0, 2), sizes.pretraining_loss), jnp.float16, *integers)
    assert found["embedding"].shape == (64, 32)
    assert sum(name.endswith("embedding") for name in found) == 1


def test_the_pipeline_of_many_ipus_is_as_large_as_asked() -> None:
    step = training.many(8, 32, 16)
    assert step.num_ipus == len(step.args[0]) == 8


# --- the command ----------------------------------------------------------------------------------


def written(path: Path, *lines: str) -> str:
    """A file of these lines."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_the_command_prints_rows_families_and_a_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"op": "per-tile matmul", "lhs": [128, 16], "rhs": [16, 16], "dtype": "fp16"}
    rows = [
        {"id": "one", "workload": good, "measured": 211.119, "unit": "TFLOP/s", "kind": "hw"},
        {"id": "two", "workload": {"op": "?"}, "measured": 1, "unit": "s", "kind": "hw"},
        {"id": "three", "workload": good, "measured": 1, "unit": "TFLOP/s", "kind": "theoretical"},
    ]
    lines = [json.dumps({**one, "hardware": BOW}) for one in rows]
    assert validate.main([written(tmp_path / "rows.jsonl", lines[0], "", *lines[1:])]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert re.match(r"one +2\d\d\.\d+ / 211.119 +TFLOP/s += +1\.0\d  vertex", printed[0])
    assert re.match(r"two +skipped: no workload of the model is named", printed[1])
    assert printed[2].endswith("(theoretical, not counted)")
    assert any(re.match(r"vertex +1 ", line) for line in printed)
    assert re.fullmatch(
        r"rows=1 skipped=1 median_abs_rel_err=0\.0\d+ p90_abs_rel_err=0\.0\d+", printed[-1]
    )


def test_a_broken_line_is_named_and_the_others_are_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = json.dumps(
        {
            "hardware": BOW,
            "workload": {"op": "tile-local copy 8 KiB"},
            "measured": 1308,
            "unit": "cycles",
            "kind": "hw",
        }
    )
    file = written(tmp_path / "rows.jsonl", good, "{", '{"kind": "hw"}')
    assert validate.main([file]) == 1
    captured = capsys.readouterr()
    assert f"{file}: line 2: not JSON" in captured.err
    assert f"{file}: line 3: 'hardware' is missing" in captured.err
    assert captured.out.splitlines()[-1].startswith("rows=1 skipped=0 ")


def test_a_file_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate.main([str(tmp_path / "none.jsonl")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_an_empty_file_has_no_statistics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate.main([written(tmp_path / "rows.jsonl", "")]) == 0
    assert "rows=0 skipped=0 median_abs_rel_err=nan" in capsys.readouterr().out


def test_one_family_alone_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = {"workload": {"op": "tile-local copy 8 KiB"}, "measured": 1308, "unit": "cycles"}
    square = {"workload": {"op": "QR", "shape": [64, 64]}, "measured": 1e5, "unit": "cycles"}
    lines = [
        json.dumps(
            {"id": name, "hardware": BOW, "kind": "hw", "source": "github me/it@1 (x)", **one}
        )
        for name, one in (("copy", copy), ("square", square))
    ]
    table = tmp_path / "table.md"
    file = written(tmp_path / "rows.jsonl", *lines)
    assert validate.main([file, "--family", "vertex", "--markdown", str(table)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("rows=1 skipped=1 ")
    text = table.read_text(encoding="utf-8")
    assert re.search(r"^\| copy \| 1308 cycles \| 1\d\d\d \| [01]\.\d\d \| me/it@1 \|$", text, re.M)
    assert "| square | no workload of the model is named |" in text
    with pytest.raises(SystemExit):
        validate.main([file, "--family", "poems"])
