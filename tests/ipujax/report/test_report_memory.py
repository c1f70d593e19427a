from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import errors
from ipujax.errors import ConfigError, IPUError, OutOfMemoryError
from ipujax.report import Report
from ipujax.report.advice.findings import Advice
from tests.ipujax.reporting import configured, f32, struct, training

WORDS = "Out of memory: Cannot fit all variable data onto one or more tiles"
FORBID = {"debug.allowOutOfMemory": "false"}


def plus_one(x: Any) -> Any:
    return x + 1


def test_what_does_not_fit_runs_and_says_so() -> None:
    configured(ipu_model__tiles_per_ipu=1)
    x = np.zeros(200_000, f32)  # 800,000 bytes for 637,872
    executable = ipu.compile(plus_one).lower(x).compile()
    np.testing.assert_array_equal(executable(x), x + 1)
    report = executable.report()
    assert not report.memory.fits
    assert report.memory.missing_bytes == report.memory.tile_peak_bytes.max() - 637_872
    text = str(report)
    assert WORDS in text
    assert "where: IPU 0, tile 0: " in text
    assert f"{report.memory.missing_bytes:,} too many; 1 of 1 tiles lack memory" in text
    assert "alive: float32[200000], variables: 800 kB, 800,000 bytes of it on that tile" in text


@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_compiling_it_is_an_error_if_asked_for(engine: str) -> None:
    configured(ipu_model__tiles_per_ipu=1, compilation_poplar_options=FORBID)
    big, small = np.zeros(200_000, f32), np.zeros(8, f32)
    run = ipu.compile(plus_one, engine=engine)
    for attempt in (lambda: run(big), lambda: run.lower(big).compile()):
        with pytest.raises(OutOfMemoryError) as caught:
            attempt()
        assert str(caught.value).startswith(WORDS)
        assert "`plus_one`" in str(caught.value)
        assert isinstance(caught.value, (MemoryError, IPUError))
        assert isinstance(caught.value.report, Report)
        assert not caught.value.report.memory.fits
    np.testing.assert_array_equal(run(small), small + 1)  # the process goes on working
    np.testing.assert_array_equal(run.lower(small).compile()(small), small + 1)


def test_allowing_it_in_words_is_the_default() -> None:
    configured(
        ipu_model__tiles_per_ipu=1, compilation_poplar_options={"debug.allowOutOfMemory": "true"}
    )
    x = np.zeros(200_000, f32)
    np.testing.assert_array_equal(ipu.compile(plus_one)(x), x + 1)


@pytest.mark.parametrize("value", ["False", "no", "", False, 0])
def test_other_words_are_errors(value: Any) -> None:
    with pytest.raises(ConfigError, match=r'allowOutOfMemory.* must be the text "true" or "false"'):
        configured(compilation_poplar_options={"debug.allowOutOfMemory": value})


def test_arguments_are_named_by_their_paths() -> None:
    configured(ipu_model__tiles_per_ipu=1)

    def model(n: int, params: Any, *, x: Any) -> Any:
        return params["w"] * n + x

    run = ipu.compile(model, static_argnums=0)
    text = str(run.lower(3, {"w": struct(100_000)}, x=struct(100_000)).report())
    assert "bytes of it on that tile (params['w'])\n" in text
    assert "bytes of it on that tile (x)\n" in text


def advice_for(**arguments: Any) -> list[str]:
    model, args = training(2, 8, **arguments)
    report = ipu.compile(model).lower(*args).report()
    assert not report.memory.fits
    ranks = [(not entry.enough, -entry.about_bytes) for entry in report.advice]
    assert ranks == sorted(ranks)
    said = ("not_enough", "untried")
    assert all(entry.about_bytes > 0 for entry in report.advice if entry.rule not in said)
    return [entry.text for entry in report.advice]


def mentions(texts: list[str], word: str) -> bool:
    return any(word in text for text in texts)


STACKED: dict[str, Any] = {  # eight layers on one IPU, and batches that let the pipeline need most
    "width": 256,
    "batch": 512,
    "device_mapping": [0] * 8,
    "pipeline_schedule": ipu.pipelining_ops.PipelineSchedule.Sequential,
}
OFFLOADS = ("offload_weight_update_variables", "offload_gradient_accumulation_buffers")


def kept_promise(entry: Advice, after: Report) -> None:
    """What advice says of a program is what the program with the advice followed has."""
    assert entry.fullest_bytes == after.memory.tile_peak_bytes.max()
    assert entry.enough == after.memory.fits
    assert f"-> {entry.fullest_bytes:,} bytes" in entry.text


def report_of_layers(stages: int, **arguments: Any) -> Report:
    model, args = training(stages, 16, **arguments)
    return ipu.compile(model).lower(*args).report()


@pytest.mark.exhaustive
@pytest.mark.parametrize("offload", OFFLOADS)
def test_offloading_takes_away_what_its_advice_says(offload: str) -> None:
    configured(ipu_model__tiles_per_ipu=4)
    before = report_of_layers(8, **STACKED)
    (entry,) = (e for e in before.advice if offload in e.text and e.rule.startswith("offload"))
    after = report_of_layers(8, **STACKED, **{offload: True})
    lowered = int((before.memory.peak_bytes - after.memory.peak_bytes)[0])
    assert entry.about_bytes == lowered
    kept_promise(entry, after)
    assert after.cycles > before.cycles
    assert not mentions([entry.text for entry in after.advice], offload)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("offload", OFFLOADS)
def test_offloading_that_takes_nothing_away_is_not_advised(offload: str) -> None:
    """One matrix on each IPU: its update needs all of the state at once."""
    configured(2, ipu_model__tiles_per_ipu=4)
    assert not mentions(advice_for(width=512), offload)
    before, after = (
        report_of_layers(2, width=512, **given).memory.tile_peak_bytes.max()
        for given in ({}, {offload: True})
    )
    assert 0.95 * before < after


def test_what_is_float32_beside_halves_is_not_the_users() -> None:
    """Sums and statistics of halves are float32 for a reason."""
    configured(ipu_model__tiles_per_ipu=4)
    half = struct(1000, 2000, dtype=np.float16)
    found = advice_of(lambda x: jnp.exp(x.astype(f32)).astype(np.float16), half)
    assert not mentions(list(found), "half precision")
    single = advice_of(jnp.exp, struct(1000, 2000))
    assert mentions(list(single), "half precision")


def test_half_precision_gives_what_its_advice_says() -> None:
    configured(ipu_model__tiles_per_ipu=4)
    for fn, shapes in ((jnp.exp, [(1000, 2000)]), (jnp.matmul, [(700, 700), (700, 700)])):
        reports = [
            ipu.compile(fn).lower(*(struct(*shape, dtype=dtype) for shape in shapes)).report()
            for dtype in (f32, np.float16)
        ]
        (entry,) = (entry for entry in reports[0].advice if entry.rule == "half_precision")
        kept_promise(entry, reports[1])


def test_what_has_no_halves_is_not_told_of_them() -> None:
    configured(ipu_model__tiles_per_ipu=4)
    found = advice_of(jnp.linalg.cholesky, struct(1024, 1024))
    assert not mentions(list(found), "half precision")


@pytest.mark.exhaustive
def test_chips_without_streaming_memory_offload_nothing() -> None:
    configured(ipu_model__tiles_per_ipu=4, ipu_model__version="ipu1")
    report = report_of_layers(8, **STACKED)
    assert not report.memory.fits
    assert not mentions([entry.text for entry in report.advice], "streaming")


@pytest.mark.exhaustive
def test_replicas_share_the_state() -> None:
    configured(4, ipu_model__tiles_per_ipu=4)
    mapping = [0, 0, 0, 0, 1, 1, 1, 1]
    report = report_of_layers(8, **{**STACKED, "device_mapping": mapping})
    texts = [entry.text for entry in report.advice]
    assert mentions(texts, "replicated_optimizer_state_sharding")
    configured(ipu_model__tiles_per_ipu=4)
    texts = [entry.text for entry in report_of_layers(8, **STACKED).advice]
    assert not mentions(texts, "replicated_optimizer_state_sharding")


@pytest.mark.exhaustive
def test_waiting_activations_are_recomputed_or_offloaded() -> None:
    arguments: dict[str, Any] = {"width": 64, "batch": 20_000}
    configured(2, ipu_model__tiles_per_ipu=4)
    texts = advice_for(**arguments)
    assert mentions(texts, "allow_recompute")
    assert mentions(texts, "offload_activations")
    configured(2, ipu_model__tiles_per_ipu=4, allow_recompute=True)
    assert not mentions(advice_for(**arguments), "allow_recompute")


def advice_of(fn: Callable[..., Any], *args: Any) -> dict[str, int]:
    report = ipu.compile(fn).lower(*args).report()
    assert not report.memory.fits
    return {entry.text: entry.about_bytes for entry in report.advice}


def layer(x: Any, weights: Any) -> Any:
    return jnp.tanh(x @ weights)


def gradient_through(layer: Any) -> Any:
    def loss(weights: Any, x: Any) -> Any:
        for each in weights:
            x = layer(x, each)
        return jnp.sum(x)

    return jax.grad(loss)


WEIGHTS, BATCH = [struct(64, 64)] * 8, struct(20_000, 64)
KEPT = 8 * 20_000 * 64 * 4  # what each tanh gives


def test_without_a_gradient_nothing_is_recomputed() -> None:
    configured(ipu_model__tiles_per_ipu=4)
    found = advice_of(lambda weights, x: layer(x, weights[0]), WEIGHTS, BATCH)
    assert not mentions(list(found), "recompute")


def test_only_products_are_told_of_their_proportion() -> None:
    configured(ipu_model__tiles_per_ipu=4)
    table, numbers = struct(1000, 1000), struct(4000, dtype=np.int32)
    lookup = advice_of(lambda table, numbers: table[numbers], table, numbers)
    assert not mentions(list(lookup), "availableMemoryProportion")


def test_a_lower_proportion_does_what_its_advice_says() -> None:
    matrix = struct(512, 512)
    configured(ipu_model__tiles_per_ipu=8)
    before = ipu.compile(jnp.matmul).lower(matrix, matrix).report()
    entry = next(e for e in before.advice if "availableMemoryProportion" in e.text)
    assert '"availableMemoryProportion": 0.3 in matmuls.poplar_options (now 0.6)' in entry.text
    options = {"availableMemoryProportion": "0.3"}
    configured(ipu_model__tiles_per_ipu=8, matmuls__poplar_options=options)
    after = ipu.compile(jnp.matmul).lower(matrix, matrix).report()
    lowered = int(before.memory.peak_bytes[0] - after.memory.peak_bytes[0])
    assert entry.about_bytes == lowered
    assert f"for {after.cycles / before.cycles:.1f} x the cycles" in entry.text
    assert entry.enough == after.memory.fits


@pytest.mark.parametrize(
    "kind", [kind for name, kind in vars(errors).items() if name.endswith("Error")], ids=str
)
def test_every_error_can_be_pickled(kind: Any) -> None:
    made = issubclass(kind, OSError)  # Python makes these anew by their constructor
    error = kind("what is wrong") if made else BaseException.__new__(kind, "what is wrong")
    error.where, error.fix = "file.py:3", "mend it"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert again.args == ("what is wrong",)
    assert str(again) == "what is wrong\n  where: file.py:3\n  fix:   mend it"


def test_errors_of_memory_can_be_pickled() -> None:
    configured(ipu_model__tiles_per_ipu=1, compilation_poplar_options=FORBID)
    with pytest.raises(OutOfMemoryError) as caught:
        ipu.compile(plus_one)(np.zeros(200_000, f32))
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is OutOfMemoryError
    assert str(again) == str(caught.value)
    assert str(again.report) == str(caught.value.report)


def test_layers_are_shared_out_anew_among_the_ipus_of_a_replica() -> None:
    def built(counts: list[int]) -> Report:
        def model(weights: Any, x: Any) -> Any:
            layers = iter(weights)
            for shard, count in enumerate(counts):
                with ipu.scopes.ipu_shard(shard):
                    for _ in range(count):
                        x = layer(x, next(layers))
            return x

        configured(2, ipu_model__tiles_per_ipu=16)
        return ipu.compile(model).lower([struct(512, 512)] * 12, struct(16, 512)).report()

    report = built([10, 2])
    (entry,) = (entry for entry in report.advice if entry.rule == "move_work")
    assert "6, 6 products" in entry.text
    assert entry.fullest_bytes == pytest.approx(
        built([6, 6]).memory.tile_peak_bytes.max(), rel=0.02
    )
    assert entry.enough


def test_the_text_tells_tensors_apart() -> None:
    """Its table has the largest tensors with owner, scope and line; columns without words go."""

    def model(params: Any, x: Any) -> Any:
        with jax.named_scope("encoder"):
            hidden = jax.nn.relu(x @ params["w0"])
        with jax.named_scope("decoder"):
            return hidden @ params["w1"]

    configured()
    weights = {"w0": struct(64, 64), "w1": struct(64, 64)}
    report = ipu.compile(model).lower(weights, struct(32, 64)).report()
    lines = str(report).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("Largest tensors on IPU 0"))
    titles, *rows = lines[first + 1 : first + 6]
    assert titles.split() == ["bytes", "tensor", "category", "owner", "scope", "line"]
    for row, tensor in zip(rows, report.memory.biggest, strict=False):
        line = Path(tensor.origin.partition(" (")[0]).name
        told = tensor.name, tensor.category, tensor.owner, tensor.scope, line
        assert re.split(r"  +", row.strip())[1:] == [text for text in told if text]
    owners = {tensor.owner: tensor.scope for tensor in report.memory.biggest}
    assert owners["params['w1']"] == ""
    assert {"encoder", "decoder"} & set(owners.values())
