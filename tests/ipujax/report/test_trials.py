"""Advice that was modelled: it is followed here, and the program modelled again."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.math_ops import serialized_matmul
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from ipujax.report import Report
from ipujax.report.advice.change import Case, Change
from ipujax.report.advice.findings import Advice
from ipujax.report.advice.trials import count_affordable_models, try_changes
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.reporting import configured, struct, training, zeros

Options = dict[str, Any]

WAITING: Options = {"width": 64, "batch": 20_000}  # what waits between the passes is most of it


def modelled(config: Options | None = None, **arguments: Any) -> Report:
    configured(2, ipu_model__tiles_per_ipu=4, **(config or {}))
    model, args = training(2, 8, **arguments)
    return ipu.compile(model).lower(*args).report()


def only(report: Report, rule: str) -> Advice:
    (entry,) = (entry for entry in report.advice if entry.rule == rule)
    return entry


def fullest(report: Report) -> int:
    return int(report.memory.tile_peak_bytes.max())


FOLLOWED: dict[str, tuple[Options, Options]] = {
    "recompute": ({"allow_recompute": True}, {}),
    "offload_activations": ({}, {"offload_activations": True}),
    "schedule": ({}, {"pipeline_schedule": PipelineSchedule.Interleaved}),
}


def test_whoever_follows_advice_gets_what_it_says() -> None:
    report = modelled(**WAITING)
    given = [entry.rule for entry in report.advice if entry.rule in FOLLOWED]
    assert len(given) >= 2
    for rule in given:
        config, arguments = FOLLOWED[rule]
        entry, after = only(report, rule), modelled(config, **WAITING, **arguments)
        assert entry.fullest_bytes == fullest(after)
        assert entry.enough == after.memory.fits
        assert f"{fullest(report):,} -> {fullest(after):,} bytes" in entry.text
        assert rule not in {each.rule for each in after.advice}


def layers(
    counts: Sequence[int], width: int, micro_batches: int = 16, **arguments: Any
) -> tuple[Callable[..., Any], Sequence[Any]]:
    """A pipeline whose stages have so many layers of one matrix each, and all state on tiles."""
    arguments = {"offload_weight_update_variables": False, **arguments}
    total = sum(counts)
    starts = [sum(counts[:n]) for n in range(len(counts))]

    def stage(number: int) -> Callable[..., Any]:
        def run(weights: Any, x: Any, y: Any) -> Any:
            for layer in range(starts[number], starts[number] + counts[number]):
                x = jnp.tanh(x @ weights[layer])
            return (x, y) if number < len(counts) - 1 else jnp.mean((x - y) ** 2)

        return run

    elements, losses = infeed(zeros(8, width)), outfeed()

    def train(weights: Any) -> Any:
        return pipeline(
            [stage(number) for number in range(len(counts))],
            micro_batches,
            infeed_queue=elements,
            outfeed_queue=losses,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.adam(0.1), loss),
            variables=weights,
            **arguments,
        )

    return train, ([struct(width, width)] * total,)


def of_layers(counts: Sequence[int], tiles: int, width: int = 256, **arguments: Any) -> Report:
    configured(len(counts), ipu_model__tiles_per_ipu=tiles)
    model, args = layers(counts, width, **arguments)
    return ipu.compile(model).lower(*args).report()


@pytest.mark.parametrize(
    ("rule", "now", "then", "tiles"),
    [("split_stages", (6, 2), (4, 4), 10), ("more_ipus", (4, 4), (2, 2, 2, 2), 4)],
)
def test_stages_can_be_cut_as_advised(
    rule: str, now: Sequence[int], then: Sequence[int], tiles: int
) -> None:
    """The model makes the cut in the traced function, the user in Python."""
    report = of_layers(now, tiles)
    entry = only(report, rule)
    assert f"with {', '.join(map(str, then))} products" in entry.text
    assert f"(now {', '.join(map(str, now))})" in entry.text
    after = of_layers(then, tiles)
    assert entry.fullest_bytes == pytest.approx(fullest(after), rel=0.03)
    assert entry.enough == after.memory.fits


def test_what_does_not_do_alone_is_tried_together() -> None:
    report = of_layers((4, 4), 4)
    entry, *others = report.advice
    assert entry.rule == "combination"
    assert entry.text.startswith("offload_weight_update_variables + 4 IPUs: fits, ")
    assert not any(other.enough for other in others)
    after = of_layers((2, 2, 2, 2), 4, offload_weight_update_variables=True)
    assert entry.fullest_bytes == pytest.approx(fullest(after), rel=0.02)
    assert after.memory.fits


def test_a_combination_says_all_that_a_new_cut_takes() -> None:
    """Twice as many IPUs take turns with another number of micro-batches."""
    report = of_layers((4, 4), 4, micro_batches=12)
    entry = report.advice[0]
    assert entry.rule == "combination"
    assert "gradient_accumulation_count=16: with 2, 2, 2, 2 products" in entry.text
    after = of_layers((2, 2, 2, 2), 4, micro_batches=16, offload_weight_update_variables=True)
    slower = (after.cycles / 16) / (report.cycles / 12)
    price = re.search(r"for ([\d.]+) x the cycles per micro-batch", entry.text)
    assert price is not None
    assert float(price[1]) == pytest.approx(slower, rel=0.05)
    assert entry.fullest_bytes == pytest.approx(fullest(after), rel=0.02)


def change(name: str) -> Change:
    return Change(name, name, name, lambda case: case)


def test_searches_end_after_as_many_models_on_all_machines() -> None:
    left, report = 3, of_layers((1, 1), 1)
    case = Case(None, None, None)  # type: ignore[arg-type]
    asked: list[Case] = []

    def profile(self: Case) -> Any:
        asked.append(self)
        return report.profile

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Case, "model_profile", profile)
        patch.setattr("ipujax.report.advice.trials.count_affordable_models", lambda _: left)
        found = try_changes(case, report.profile, [change(name) for name in "abcd"])
    assert len(asked) == left
    assert [each.rule for each in found.untried] == list("abcd"[left:])
    assert found.done == ()


def test_each_change_is_tried_alone_before_any_with_more_effect() -> None:
    """Long programs are not modelled with more effect where one change is enough as it is."""
    fits, lacks = (of_layers((1, 1), tiles).profile for tiles in (100, 1))
    (one, *_) = lacks.liveness
    long = dc.replace(lacks, liveness=[one] * 1000)

    def with_effect(name: str, effect: int) -> Change:
        stronger = None if effect == 3 else with_effect(name, effect + 1)
        apply = lambda _: Case((name, effect), None, None)  # type: ignore[arg-type]  # noqa: E731
        return dc.replace(change(name), apply=apply, make_stronger=lambda: stronger)

    orders: list[list[Any]] = []

    def profile(self: Case) -> Any:
        orders[-1].append(self.program)
        return fits if self.program == ("b", 1) else lacks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Case, "model_profile", profile)
        for before in (lacks, long):
            orders.append([])
            case = Case(None, None, None)  # type: ignore[arg-type]
            try_changes(case, before, [with_effect(name, 1) for name in "abc"])
    mildest = [("a", 1), ("b", 1), ("c", 1)]
    assert orders == [[*mildest, ("a", 2), ("c", 2)], mildest]


def test_a_model_of_a_program_that_is_lowered_anew_counts_for_three() -> None:
    left, report = 7, of_layers((1, 1), 1)
    case = Case(None, None, None)  # type: ignore[arg-type]

    def profile(self: Case) -> Any:
        self.memory.num_lowered += 1
        return report.profile

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Case, "model_profile", profile)
        patch.setattr("ipujax.report.advice.trials.count_affordable_models", lambda _: left)
        found = try_changes(case, report.profile, [change(name) for name in "abcd"])
    assert found.models == 3
    assert [each.rule for each in found.untried] == ["d"]


def test_long_programs_are_modelled_less_often() -> None:
    profile = of_layers((1, 1), 100).profile
    (one, *_), times = profile.liveness, 1000
    long = dc.replace(profile, liveness=[one] * times)
    assert count_affordable_models(profile) > count_affordable_models(long) >= 6


def classified(product: Callable[..., Any]) -> Callable[..., Any]:
    """A layer, and a large product whose work space sets the peak, with its gradients."""

    def loss(weights: Any, x: Any) -> Any:
        return jax.nn.logsumexp(product(jnp.tanh(x @ weights[0]), weights[1]), -1).mean()

    return jax.value_and_grad(loss)


def tied(product: Callable[..., Any]) -> Callable[..., Any]:
    """A table for lookups, and for what is made of them."""

    def loss(table: Any, numbers: Any) -> Any:
        logits = product(jnp.tanh(table[numbers]), table.T)
        return jax.nn.logsumexp(logits, -1).mean()

    return jax.value_and_grad(loss)


def by_parts(advice: Advice) -> Callable[..., Any]:
    """The product that advice asks for."""
    found = re.search(r'factor=(\d+), serialization_dimension="(\w+)"', advice.text)
    assert found is not None
    factor, dimension = int(found[1]), found[2]
    return lambda a, b: serialized_matmul(a, b, factor, dimension)


SHAPES: dict[str, Sequence[Any]] = {
    "columns": (classified, [struct(64, 64), struct(64, 8192)], struct(256, 64)),
    "halves": (
        classified,
        [struct(64, 64, dtype=np.float16), struct(64, 8192, dtype=np.float16)],
        struct(256, 64, dtype=np.float16),
    ),
    "rows": (classified, [struct(64, 64), struct(64, 256)], struct(8192, 64)),
    "inner": (classified, [struct(64, 8192), struct(8192, 256)], struct(128, 64)),
    "table": (tied, struct(8192, 64), struct(256, dtype=np.int32)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_large_products_are_made_in_parts_as_advised(name: str) -> None:
    configured(ipu_model__tiles_per_ipu=16)
    made, *args = SHAPES[name]
    whole: Callable[..., Any] = made(operator.matmul)
    report = ipu.compile(whole).lower(*args).report()
    given = [entry for entry in report.advice if entry.rule == "serialized_matmul"]
    assert given
    for entry in given:
        assert re.search(r"in (2|8|16|32|64) parts", entry.text)
        assert f"{__file__}:" in entry.text
        followed: Callable[..., Any] = made(by_parts(entry))
        after = ipu.compile(followed).lower(*args).report()
        assert entry.fullest_bytes == pytest.approx(fullest(after), rel=0.03)
        assert entry.enough == after.memory.fits
        assert fullest(after) < fullest(report)


def test_products_that_do_not_set_the_peak_stay_whole() -> None:
    configured(ipu_model__tiles_per_ipu=4)

    def function(x: Any, w: Any) -> Any:
        return jnp.sort(x, -1) + (x[:8, :8] @ w).sum()

    report = ipu.compile(function).lower(struct(1000, 2000), struct(8, 8)).report()
    assert not report.memory.fits
    assert not any(entry.rule == "serialized_matmul" for entry in report.advice)


def normed_layers(weights: Any, x: Any) -> Any:
    for w in weights:
        x = x @ w
        x = x - x.mean(-1, keepdims=True)
        x = jax.nn.gelu(x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5))
    return jnp.sum(x**2)


def test_recomputation_outside_pipelines_gives_what_its_advice_says() -> None:
    args = [struct(64, 64)] * 8, struct(8000, 64)
    reports: list[Report] = []
    for allowed in (False, True):
        configured(ipu_model__tiles_per_ipu=72, allow_recompute=allowed)
        reports.append(ipu.compile(jax.grad(normed_layers)).lower(*args).report())
    before, after = reports
    entry = only(before, "recompute")
    assert "IPUConfig.allow_recompute" in entry.text
    assert entry.fullest_bytes == fullest(after) < fullest(before)
    assert entry.enough == after.memory.fits
    assert not any(each.rule == "recompute" for each in after.advice)


def test_a_combination_is_not_advised_where_one_change_does() -> None:
    report = of_layers((6, 2), 10)
    enough = [entry.rule for entry in report.advice if entry.enough]
    assert "split_stages" in enough
    assert "combination" not in enough


def test_what_is_not_enough_says_how_far_it_comes() -> None:
    report = of_layers((2, 2), 1)
    assert not any(entry.enough for entry in report.advice)
    sentence = only(report, "not_enough").text
    best = min(entry.fullest_bytes for entry in report.advice if entry.fullest_bytes)
    assert "is enough; the best is " in sentence
    assert f"{best:,} bytes on the fullest tile" in sentence
    assert not any(entry.rule == "not_enough" for entry in of_layers((4, 4), 4).advice)


def dense(
    counts: Sequence[int], batch: int, dtype: Any = np.float32, parts: int = 1, width: int = 4096
) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Layers of one matrix each, so many on each shard, trained by gradient descent."""

    def product(x: Any, w: Any) -> Any:
        return x @ w if parts == 1 else serialized_matmul(x, w, parts, "b_rows")

    def loss(weights: Any, x: Any) -> Any:
        layers = iter(weights)
        for shard, count in enumerate(counts):
            scope = ipu.scopes.ipu_shard(shard) if len(counts) > 1 else contextlib.nullcontext()
            with scope:
                for _ in range(count):
                    x = jax.nn.relu(product(x, next(layers)))
        return jnp.mean(x**2)

    def step(weights: Any, x: Any) -> Any:
        gradients = jax.grad(loss)(weights, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)

    weights = [struct(width, width, dtype=dtype)] * sum(counts)
    return step, (weights, struct(batch, width, dtype=dtype))


def of_dense(
    counts: Sequence[int],
    batch: int,
    proportion: float = 0.6,
    allow_recompute: bool = False,
    **more: Any,
) -> Report:
    options = {"availableMemoryProportion": str(proportion)}
    ipus = 1 << (len(counts) - 1).bit_length()
    configured(ipus, matmuls__poplar_options=options, allow_recompute=allow_recompute)
    step, args = dense(counts, batch, **more)
    return ipu.compile(step).lower(*args).report()


def test_layers_on_one_ipu_are_told_of_parts_halves_and_ipus() -> None:
    """Eleven layers fit in many parts, in half precision, and on two IPUs: all is tried here."""
    report = of_dense([11], 128)
    enough = {each.rule: each for each in report.advice if each.enough}
    in_parts = next(each for each in enough.values() if "serialized_matmul" in each.text)
    parts = re.search(r"in (\d+) parts", in_parts.text)
    proportion = re.search(r"Proportion ([\d.]+)", in_parts.text)
    counts = re.search(r"around ([\d, ]+) products", enough["more_ipus"].text)
    assert parts is not None
    assert counts is not None
    followed = {
        in_parts.rule: of_dense(
            [11], 128, float(proportion[1]) if proportion else 0.6, parts=int(parts[1])
        ),
        "half_precision": of_dense([11], 128, dtype=np.float16),
        "more_ipus": of_dense([int(count) for count in counts[1].split(", ")], 128),
    }
    assert set(enough) == set(followed)
    for rule, after in followed.items():
        assert enough[rule].fullest_bytes == pytest.approx(fullest(after), rel=0.02), rule
        assert after.memory.fits


def test_forms_of_one_change_are_named_once() -> None:
    report = of_dense([11], 512)
    assert len(report.advice) > 3
    rules = [each.rule for each in report.advice if each.rule != "combination"]
    assert len(rules) == len(set(rules))


def test_combinations_with_more_ipus_give_what_they_say() -> None:
    report = of_dense([11], 1024)
    several = [each for each in report.advice if each.rule == "combination" and each.enough]
    assert len(several) == 2  # with half precision, and with IPUs
    entry = next(each for each in several if "IPUs (ipu_shard)" in each.text)
    parts = re.search(r"in (\d+) parts", entry.text)
    proportion = re.search(r"Proportion ([\d.]+)", entry.text)
    counts = re.search(r"around ([\d, ]+) products", entry.text)
    assert proportion is not None
    assert counts is not None
    after = of_dense(
        [int(count) for count in counts[1].split(", ")],
        1024,
        float(proportion[1]),
        parts=int(parts[1]) if parts else 1,
        allow_recompute="allow_recompute" in entry.text,
    )
    assert entry.fullest_bytes == pytest.approx(fullest(after), rel=0.02)
    assert after.memory.fits


@pytest.mark.parametrize("form", ["loop", "inference", "jit"])
def test_layers_are_shared_out_wherever_they_are(form: str) -> None:
    def build(counts: Sequence[int]) -> Report:
        configured(len(counts), ipu_model__tiles_per_ipu=16)
        step, (weights, x) = dense(counts, 16, width=512)
        if form == "loop":
            run = lambda w, x: ipu.loops.repeat(4, lambda w: step(w, x), [w])  # noqa: E731
        elif form == "jit":
            run = jax.jit(step)
        else:
            run = lambda w, x: _forward(counts, w, x)  # noqa: E731
        compiled: Any = ipu.compile(run)
        return compiled.lower(weights, x).report()

    entry = only(build([12]), "more_ipus")
    found = re.search(r"around ([\d, ]+) products", entry.text)
    assert found is not None
    after = build([int(count) for count in found[1].split(", ")])
    assert entry.fullest_bytes == pytest.approx(fullest(after), rel=0.02)


def _forward(counts: Sequence[int], weights: Any, x: Any) -> Any:
    layers = iter(weights)
    for shard, count in enumerate(counts):
        with ipu.scopes.ipu_shard(shard) if len(counts) > 1 else contextlib.nullcontext():
            for _ in range(count):
                x = jax.nn.relu(x @ next(layers))
    return x


def test_nothing_is_offered_that_was_not_modelled() -> None:
    configured(ipu_model__tiles_per_ipu=4)
    said = ("not_enough", "untried")
    for fn, args in (
        (jax.grad(normed_layers), ([struct(64, 64)] * 4, struct(2000, 64))),
        (jnp.matmul, (struct(1500, 1500), struct(1500, 1500))),
        (jnp.linalg.cholesky, (struct(1024, 1024),)),
        (lambda x: jnp.exp(x) + 1, (struct(2000, 2000),)),
    ):
        compiled: Any = ipu.compile(fn)
        report = compiled.lower(*args).report()
        assert not report.memory.fits
        for entry in report.advice:
            assert "not modelled" not in entry.text
            assert "at most" not in entry.text
            assert entry.fullest_bytes > 0 or entry.rule in said
