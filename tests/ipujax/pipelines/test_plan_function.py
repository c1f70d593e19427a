"""`ipu.plan` of functions: what it costs, where it cuts, and that the plan runs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import planning
from ipujax.errors import FrontendError, PipelineError, PlanError
from ipujax.pipelines.plan_function import segment_call

WIDTH, LAYERS, ROWS = 16, 6, 32


def parameters(layers: int = LAYERS) -> dict[str, Any]:
    keys = jax.random.split(jax.random.key(0), layers + 1)
    return {
        "layers": [jax.random.normal(key, (WIDTH, WIDTH)) / 4 for key in keys[1:]],
        "head": jax.random.normal(keys[0], (WIDTH, 4)) / 4,
    }


def batch() -> dict[str, Any]:
    rows = jnp.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH)
    return {"x": rows, "y": jnp.arange(ROWS) % 4}


def loss(params: Any, batch: Any) -> Any:
    x = batch["x"]
    for layer in params["layers"]:
        x = jnp.tanh(x @ layer)
    scores = jax.nn.log_softmax(x @ params["head"])
    return -jnp.mean(jnp.take_along_axis(scores, batch["y"][:, None], 1))


def stacked_loss(params: Any, batch: Any) -> Any:
    x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), batch["x"], params["layers"])
    return jnp.mean((x @ params["layers"][0].T) ** 2)


def check_that_it_runs(plan: planning.Plan, fun: Any, *args: Any) -> None:
    grad_fn = ipu.pipelining_ops.value_and_grad(fun, **plan.arguments)
    found, wanted = ipu.compile(grad_fn)(*args), jax.value_and_grad(fun)(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    "schedule",
    ["grouped", "interleaved", "sequential", "gpipe", "one_f_one_b", "zero_bubble",
     "interleaved_one_f_one_b", "zbv"],
)  # fmt: skip
def test_plans_of_every_schedule_run(schedule: str) -> None:
    args = parameters(), batch()
    plan = ipu.plan(loss, *args, ipus=2, micro_batches=8, schedules=schedule)
    assert plan.schedule == schedule
    assert plan.proven
    check_that_it_runs(plan, loss, *args)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", ["gpipe", "zero_bubble"])
def test_plans_that_offload_run(schedule: str, recompute: bool) -> None:
    args = parameters(), batch()
    costs = planning.Costs(
        [1] * (LAYERS + 1),
        [1] * (LAYERS + 1),
        [1] * (LAYERS + 1),
        activation_bytes=[9] * (LAYERS + 1),
        cut_bytes=[1] * LAYERS,
        host_bytes_per_second=100,
    )
    choices = {"schedules": schedule, "recompute": recompute, "offload": True, "costs": costs}
    plan = ipu.plan(loss, *args, ipus=2, micro_batches=8, **choices)
    assert plan.offload
    check_that_it_runs(plan, loss, *args)
    grad_fn = ipu.pipelining_ops.value_and_grad(loss, **plan.arguments)
    report = ipu.compile(grad_fn).lower(*args).report()
    moves = {(step.ipu, step.phase) for step in report.steps if step.kind == "remote"}
    assert {(ipu, phase) for ipu in (0, 1) for phase in ("fwd", "bwd")} <= moves


def test_the_machine_model_has_streaming_memory() -> None:
    plan = ipu.plan(loss, parameters(), batch(), ipus=2, micro_batches=4, offload=True)
    assert plan.offload
    with pytest.raises(PlanError, match="no host memory"):
        ipu.plan(
            loss, parameters(2), batch(), ipus=2, micro_batches=4, offload=True, costs="measured"
        )


def test_stages_name_the_users_lines() -> None:
    plan = ipu.plan(loss, parameters(), batch(), ipus=3, micro_batches=4, schedules="one_f_one_b")
    lines = Path(__file__).read_text().splitlines()
    for stage in plan.stages:
        for line in (stage.first, stage.last):
            file, _, rest = line.partition(":")
            assert Path(file).name == Path(__file__).name
            assert "loss" in rest
    first = int(plan.stages[0].first.split(":")[1].split()[0])
    assert "layer" in lines[first - 1]


def test_stages_name_no_lines_of_installed_packages() -> None:
    from flax import linen

    model: Any = linen.Sequential([linen.Dense(WIDTH), linen.tanh, linen.Dense(WIDTH)])
    x = batch()["x"]
    params = jax.eval_shape(model.init, jax.random.key(0), x)

    def module_loss(params: Any, x: Any) -> Any:
        return jnp.mean(model.apply(params, x) ** 2)

    plan = ipu.plan(module_loss, params, x, ipus=2, micro_batches=4, schedules="gpipe")
    assert len(plan.stages) == 2
    here = Path(__file__)
    assert all(place.startswith(str(here)) for s in plan.stages for place in (s.first, s.last))
    number = plan.stages[0].first.split(":")[1].split()[0]
    assert re.search(rf"0 B +\S+ \wB  {here.name}:{number} ", str(plan))


def test_scans_over_layers_are_cut_between_iterations() -> None:
    params = {"layers": jnp.stack(parameters()["layers"])}
    args = params, batch()
    assert len(planning.segments(stacked_loss, *args)) == LAYERS + 1
    plan = ipu.plan(stacked_loss, *args, ipus=3, micro_batches=4, recompute=True)
    assert {*plan.device_mapping} == {0, 1, 2}
    check_that_it_runs(plan, stacked_loss, *args)


def test_what_a_scan_reads_and_leaves_passes_between_its_iterations() -> None:
    def loss_of_scan(params: Any, batch: Any) -> Any:
        first = jnp.tanh(batch["x"] @ params["head"])  # [rows, 4]
        mask = jnp.sin(first)

        def run_layer(x: Any, w: Any) -> tuple[Any, Any]:
            x = jnp.tanh(x @ w) * mask
            return x, x[:, 0]

        x, stacked = jax.lax.scan(run_layer, first, params["layers"])
        return jnp.mean((x + first) @ params["tail"]) + jnp.mean(stacked)

    layers = jnp.zeros((LAYERS, 4, 4))
    args = {"head": parameters()["head"], "layers": layers, "tail": layers[0]}, batch()
    found = [segment.bytes_after for segment in planning.segments(loss_of_scan, *args)]
    row = 4 * ROWS  # bytes of a number per row
    assert found == [
        4 * row,  # `first`
        *((3 * 4 + done) * row for done in range(1, LAYERS)),  # x, `first`, `mask`, rows
        (4 + LAYERS) * row,  # x + `first`
        0,
    ]


def test_parameters_that_several_segments_read_are_tied() -> None:
    def tied_loss(params: Any, batch: Any) -> Any:
        x = batch["x"]
        for layer in [*params["layers"], params["layers"][1], params["layers"][0]]:
            x = jnp.tanh(x @ layer)
        return jnp.mean(x**2)

    args = parameters(3), batch()
    costs = segment_call(tied_loss, args, 4).compute_costs(are_measured=False)
    size = 2 * 4 * WIDTH * WIDTH
    assert costs.parameter_bytes == (size, size, size, 0, 0)
    assert {*costs.tied_bytes} == {(0, 4, size), (1, 3, size)}
    both = {"ipus": 2, "micro_batches": 4, "schedules": "gpipe", "recompute": False}
    plan = ipu.plan(tied_loss, *args, **both)
    stages = [range(*stage.segments) for stage in plan.stages]
    assert [stage.parameter_bytes for stage in plan.stages] == [
        size * len({i if i < 3 else 4 - i for i in stage}) for stage in stages
    ]
    check_that_it_runs(plan, tied_loss, *args)


def test_equal_layers_cost_the_same() -> None:
    first, *layers, head = planning.segments(loss, parameters(), batch())
    assert {layer.parameter_bytes for layer in [first, *layers]} == {2 * 4 * WIDTH * WIDTH}
    assert head.parameter_bytes == 2 * 4 * WIDTH * 4
    assert {layer.bytes_after for layer in [first, *layers]} == {4 * ROWS * WIDTH}
    assert head.bytes_after == 0


def test_nothing_is_run_for_shapes() -> None:
    args = parameters(), batch()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    plans = [ipu.plan(loss, *one, ipus=2, micro_batches=(4, 8)) for one in (args, shapes)]
    assert plans[0] == plans[1]
    check_that_it_runs(plans[1], loss, *args)


def test_more_micro_batches_are_smaller_ones() -> None:
    args = parameters(), batch()
    few, many = (ipu.plan(loss, *args, ipus=2, micro_batches=n, schedules="gpipe") for n in (2, 8))
    assert few.stages[1].transfer_bytes == 4 * many.stages[1].transfer_bytes
    both = ipu.plan(loss, *args, ipus=2, micro_batches=(2, 8), schedules="gpipe")
    assert both.seconds == min(few.seconds, many.seconds)
    assert {row.micro_batches for row in both.considered} == {2, 8}


def test_what_several_segments_keep_is_shared() -> None:
    def mixed(params: Any, batch: Any) -> Any:
        x = jnp.tanh(batch["x"] @ params["layers"][0])
        a, b, c = (x @ layer for layer in params["layers"][1:4])
        return jnp.mean(a * b * c)

    args = parameters(4), {"x": batch()["x"]}
    tried: list[planning.Costs] = []

    class Kept(planning.Costs):
        def __post_init__(self) -> None:
            super().__post_init__()
            tried.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ipujax.pipelines.segment_costs.Costs", Kept)
        ipu.plan(mixed, *args, ipus=1, micro_batches=4)
    (costs,) = tried
    # x is kept to the gradients of three weights, and by the tanh that makes it.
    bytes_of_x = ROWS // 4 * WIDTH * 4
    assert [(b - a, size) for a, b, size in costs.shared_bytes] == [(1, bytes_of_x)] * 3
    rows = {"x": args[1]["x"][: ROWS // 4]}
    _, pullback = jax.vjp(lambda params: mixed(params, rows), args[0])
    given = {id(x) for x in jax.tree.leaves(args[0])}
    kept = {id(x): x.nbytes for x in jax.tree.leaves(pullback) if id(x) not in given}
    whole = sum(costs.activation_bytes or ()) - sum(size for *_, size in costs.shared_bytes)
    assert whole == sum(kept.values())


def test_segments_result_in_what_others_read_alone() -> None:
    function = segment_call(loss, (parameters(), batch()), 1)
    for end, segment in enumerate(function.segments, 1):
        results = function.take_stage(0, end).closed.out_avals
        passing = segment.bytes_after or 4  # bytes of the loss
        assert sum(x.size * x.dtype.itemsize for x in results) == passing


def test_costs_may_be_measured() -> None:
    args = parameters(3), batch()
    plan = ipu.plan(loss, *args, ipus=2, micro_batches=4, costs="measured")
    assert all(0 < stage.seconds.forward < 1 for stage in plan.stages)
    check_that_it_runs(plan, loss, *args)


def test_costs_may_be_given() -> None:
    args = parameters(3), batch()
    costs = planning.Costs([9, 1, 1, 1], [18, 2, 2, 2])
    plan = ipu.plan(loss, *args, ipus=2, micro_batches=4, costs=costs)
    assert plan.stages[0].segments == (0, 1)
    check_that_it_runs(plan, loss, *args)
    with pytest.raises(PlanError, match="of 3 segments, and `loss` has 4"):
        ipu.plan(loss, *args, ipus=2, micro_batches=4, costs=planning.Costs([1] * 3, [1] * 3))


def loop_loss(params: Any, batch: Any) -> Any:
    def run_layer(_: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["layers"][0])

    return jnp.mean(jax.lax.fori_loop(0, 3, run_layer, batch["x"]) ** 2)  # no layers: one product


def test_a_function_of_one_segment_is_not_cut() -> None:
    args = parameters(1), batch()
    with pytest.raises(PlanError, match="`loop_loss` cannot be cut over 2 IPUs") as caught:
        ipu.plan(loop_loss, *args, ipus=2, micro_batches=4)
    lines = Path(__file__).read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.endswith("no layers: one product"))
    assert f"{Path(__file__).name}:{number} (loop_loss)" in str(caught.value)
    for choices in ({"ipus": 1}, {"ipus": 2, "replicas": 2}):
        plan = ipu.plan(loop_loss, *args, micro_batches=4, **choices)
        assert len(plan.stages) == 1


def test_what_has_no_gradient_is_named_by_its_line() -> None:
    def while_loss(params: Any, batch: Any) -> Any:
        def run_layer(x: Any) -> Any:
            return jnp.tanh(x @ params["layers"][0])

        x = jax.lax.while_loop(lambda x: x.sum() < 0, run_layer, batch["x"])  # no gradient
        return jnp.mean(x @ params["head"])

    lines = Path(__file__).read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.endswith("# no gradient"))
    where = rf"{Path(__file__).name}:{number} \("
    with pytest.raises(PipelineError, match=rf"Reverse-mode[^\n]*\n.*where: .*{where}"):
        ipu.plan(while_loss, parameters(1), batch(), ipus=2, micro_batches=4)


def test_a_plan_is_for_its_function_alone() -> None:
    args = parameters(), batch()
    plan = ipu.plan(loss, *args, ipus=2, micro_batches=4)

    def other(params: Any, batch: Any) -> Any:
        return 2 * loss(params, batch)

    wrong = ipu.pipelining_ops.value_and_grad(other, **plan.arguments)
    with pytest.raises(PlanError, match="made for another function than `other`"):
        ipu.compile(wrong)(*args)
    wider = jax.tree.map(lambda x: jnp.concatenate([x, x]), args[1])
    with pytest.raises(PlanError, match="other shapes"):
        ipu.compile(ipu.pipelining_ops.value_and_grad(loss, **plan.arguments))(args[0], wider)


def test_what_does_not_fit_names_the_nearest() -> None:
    with pytest.raises(PlanError, match="no plan fits") as caught:
        ipu.plan(loss, parameters(), batch(), ipus=2, micro_batches=4, memory=1000)
    nearest = caught.value.nearest
    assert max(nearest.peak_bytes) - 1000 == caught.value.lacks
    assert nearest.digest


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"objective": "beauty"}, PlanError, "objective is 'beauty'"),
        ({"costs": "guessed"}, PlanError, "costs is 'guessed'"),
        ({"micro_batches": 5}, PipelineError, "do not divide into 5"),
        ({"argnums": 7}, PipelineError, "argnums names positional argument 7"),
        ({"ipus": 0}, PlanError, "ipus is 0"),
    ],
)
def test_arguments_that_cannot_be(wrong: dict[str, Any], error: type, words: str) -> None:
    given: dict[str, Any] = {"ipus": 2, "micro_batches": 4}
    with pytest.raises(error, match=words):
        ipu.plan(loss, parameters(), batch(), **(given | wrong))


def test_marks_are_refused() -> None:
    def marked(params: Any, batch: Any) -> Any:
        with ipu.scopes.pipeline_stage(0):
            hidden = batch["x"] @ params["layers"][0]
        with ipu.scopes.pipeline_stage(1):
            return jnp.mean(hidden @ params["head"])

    with pytest.raises(PlanError, match="`marked` has marks of stages"):
        ipu.plan(marked, parameters(), batch(), ipus=2, micro_batches=4)


def test_a_function_that_reads_no_parameter_cannot_be_cut() -> None:
    with pytest.raises(PipelineError, match="nothing to cut"):
        ipu.plan(lambda p, b: jnp.sum(b), jnp.ones(3), jnp.ones(4), ipus=2, micro_batches=2)


def test_the_memory_of_the_machine_model_is_that_of_an_ipu() -> None:
    wide = {"layers": [jax.ShapeDtypeStruct((9000, 9000), np.float32)] * 4,
            "head": jax.ShapeDtypeStruct((9000, 4), np.float32)}  # fmt: skip
    rows = {"x": jax.ShapeDtypeStruct((8, 9000), np.float32),
            "y": jax.ShapeDtypeStruct((8,), np.int32)}  # fmt: skip
    with pytest.raises(PlanError, match="no plan fits"):
        ipu.plan(loss, wide, rows, ipus=2, micro_batches=4)
    plan = ipu.plan(loss, wide, rows, ipus=4, micro_batches=4)
    assert max(plan.peak_bytes) < 1472 * 638_976
    assert math.isfinite(plan.seconds)


def test_models_of_other_libraries_are_planned_with_their_loss() -> None:
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 4)]
    model = ipu.frontends.from_torch(torch.nn.Sequential(*layers), (torch.ones(4, WIDTH),))
    data = batch()

    def squared(outputs: Any, labels: Any) -> Any:
        return jnp.mean((outputs - labels[:, None]) ** 2)

    plan = ipu.plan(model, squared, data["x"], data["y"], ipus=2, micro_batches=8)
    assert len(plan.stages) == 2
    function = planning.loss_of_model(model, squared)
    variables = model.split(model.variables)[0]
    grad_fn = ipu.pipelining_ops.value_and_grad(function, **plan.arguments)
    found, _ = ipu.compile(grad_fn)(variables, data["x"], data["y"])
    rows = zip(jnp.split(data["x"], 8), jnp.split(data["y"], 8), strict=True)
    wanted = [function(variables, x, y) for x, y in rows]
    np.testing.assert_allclose(found, np.mean(wanted), rtol=1e-5)
    with pytest.raises(PlanError, match="its loss, its inputs and its labels: here are 1"):
        ipu.plan(model, squared, ipus=2, micro_batches=8)
    with pytest.raises(FrontendError, match="traced for shape") as refusal:
        ipu.plan(model, squared, data["x"], data["y"], ipus=2, micro_batches=4)
    assert refusal.value.where is not None
    assert __file__ in refusal.value.where
