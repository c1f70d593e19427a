"""Memory, liveness and out-of-memory texts call values as the user does."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipujax.report import Report
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.reporting import configured, struct, zeros

WIDTH = 256
PARAMS = {"blocks": [{"up": struct(WIDTH, WIDTH)}, {"up": struct(WIDTH, WIDTH)}]}
UP = "params['blocks'][0]['up']"


def paths(report: Report) -> set[str]:
    return {tensor.path for held in report.liveness for tensor in held.tensors} - {""}


def loss_of(params: Any, x: Any) -> Any:
    for block in params["blocks"]:
        x = jnp.tanh(x @ block["up"])
    return jnp.mean(x**2)


def pipelined(state: bool = False, optimizer: Any = None, **arguments: Any) -> Report:
    """Two stages over two IPUs, trained by Adam."""
    optimizer = optimizer or optax.adam(0.1)
    elements, losses = infeed(zeros(8, WIDTH)), outfeed()

    def first(weights: Any, x: Any, y: Any) -> Any:
        return jnp.tanh(x @ weights["blocks"][0]["up"]), y

    def last(weights: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ weights["blocks"][1]["up"] - y) ** 2)

    def train(params: Any, slots: Any = None) -> Any:
        return pipeline(
            [first, last],
            8,
            infeed_queue=elements,
            outfeed_queue=losses,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
            variables=params,
            optimizer_state=slots,
            **arguments,
        )

    slots = [jax.eval_shape(optax.adam(0.1).init, PARAMS)] if state else []
    return ipu.compile(train).lower(PARAMS, *slots).report()


@pytest.mark.parametrize("repeat_count", [1, 3])
def test_slots_and_accumulators_of_a_pipeline(repeat_count: int) -> None:
    configured(2, ipu_model__tiles_per_ipu=1)
    report = pipelined(repeat_count=repeat_count)
    found = paths(report)
    assert {UP, f"{UP}: gradient sum", f"{UP}: optimizer_state[0].mu"} <= found
    assert {f"{UP}: optimizer_state[0].nu", "optimizer_state[0].count"} <= found
    for held in report.liveness:  # the names are of tensors of that shape
        for tensor in held.tensors:
            if tensor.path.startswith("params['blocks']"):
                assert tensor.name == f"float32[{WIDTH},{WIDTH}]"
    text = str(report)
    assert "Out of memory" in text
    assert "on that tile (params['blocks'][" in text
    assert ": gradient sum" in text
    assert ": optimizer_state[0].mu" in text


def test_a_state_that_is_given_keeps_its_own_path() -> None:
    configured(2)
    found = paths(pipelined(state=True))
    assert {"slots[0].mu['blocks'][0]['up']", f"{UP}: gradient sum", UP} <= found


def test_offloaded_variables_keep_their_names() -> None:
    configured(2)
    found = paths(pipelined(offload_weight_update_variables=True))
    assert {UP, f"{UP}: gradient sum", f"{UP}: optimizer_state[0].mu"} <= found


def test_what_takes_the_place_of_a_variable_is_called_as_it_is() -> None:
    """Moments that an update has replaced have the names of those before it."""
    configured(2)
    report = pipelined(
        optimizer=optax.chain(optax.clip_by_global_norm(1), optax.adam(0.1)),
        offload_weight_update_variables=False,
    )
    variables = [t for t in report.liveness[0].tensors if t.category == "variables"]
    assert {f"{UP}: optimizer_state[1][0].mu"} == {t.path for t in variables if "mu" in t.path}
    assert {t.operation for t in variables} >= {"add"}
    assert all(t.path for t in variables)


def test_what_waits_in_a_fifo_has_the_line_that_made_it() -> None:
    configured(2)
    report = pipelined()
    tensors = [tensor for held in report.liveness for tensor in held.tensors]
    waiting = [tensor for tensor in tensors if tensor.category == "fifos"]
    assert waiting
    assert all(".first)" in tensor.origin or tensor.path for tensor in waiting)


@pytest.mark.parametrize("with_queue", [False, True])
def test_a_loop_calls_its_variables_as_the_arguments(with_queue: bool) -> None:
    configured()
    optimizer, elements = optax.adam(0.1), infeed(zeros(8, WIDTH))

    def step(params: Any, slots: Any, x: Any = None, y: Any = None) -> Any:
        x = jnp.ones((8, WIDTH)) if x is None else x
        updates, slots = optimizer.update(jax.grad(loss_of)(params, x), slots, params)
        return optax.apply_updates(params, updates), slots

    def train(params: Any, slots: Any) -> Any:
        queue = elements if with_queue else None
        return ipu.loops.repeat(3, step, (params, slots), queue)

    slots = jax.eval_shape(optimizer.init, PARAMS)
    report = ipu.compile(train).lower(PARAMS, slots).report()
    variables = {
        tensor.path
        for tensor in report.liveness[0].tensors
        if tensor.operation in ("loop variable", "argument")
    }
    assert {UP, "slots[0].mu['blocks'][0]['up']"} <= variables


def test_slots_that_a_program_makes_itself() -> None:
    configured()
    optimizer, elements = optax.adam(0.1), infeed(zeros(8, WIDTH))

    def step(params: Any, slots: Any, x: Any, y: Any) -> Any:
        updates, slots = optimizer.update(jax.grad(loss_of)(params, x), slots, params)
        return optax.apply_updates(params, updates), slots

    def train(params: Any) -> Any:
        return ipu.loops.repeat(3, step, (params, optimizer.init(params)), elements)

    report = ipu.compile(train).lower(PARAMS).report()
    assert {UP, f"{UP}: slots[0].mu", f"{UP}: slots[0].nu"} <= paths(report)


def test_names_of_arguments_in_every_form() -> None:
    configured(ipu_model__tiles_per_ipu=1)

    def model(n: int, params: Any, *more: Any, x: Any, **others: Any) -> Any:
        return [params["w"] * n + x, more[0] + others["z"]]

    run = ipu.compile(model, static_argnums=0)
    wide = struct(100_000)
    report = run.lower(3, {"w": wide}, wide, x=wide, z=wide).report()
    assert {"params['w']", "more[0]", "x", "z"} <= paths(report)
    assert "bytes of it on that tile (params['w'])\n" in str(report)
    assert set(report.arguments.values()) == {
        "args[1]['w']",
        "args[2]",
        "kwargs['x']",
        "kwargs['z']",
    }


def test_results_are_named() -> None:
    configured()
    report = ipu.compile(lambda x: {"wide": jnp.tile(x, 4)}).lower(struct(64)).report()
    assert paths(report) == {"x", "results['wide']"}


def test_names_come_back_from_a_file() -> None:
    configured(2)
    report = pipelined()
    document = json.loads(json.dumps(report.to_dict()))
    back = Report.from_dict(document)
    assert paths(back) == paths(report)
    assert back.memory.biggest == report.memory.biggest
    for held in document["liveness"]:
        del held["tensors"]["path"]  # as in reports of earlier versions
    for tensor in document["memory"]["biggest"]:
        del tensor["path"]
    assert paths(Report.from_dict(document)) == set()
