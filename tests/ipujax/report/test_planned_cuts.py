"""Advice on unequal stages: a plan's cut, the line that applies it, and what that gains."""

from __future__ import annotations

import ast
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import ipujax as ipu

WIDTH, LAYERS, ROWS, COUNT = 256, 10, 1024, 8
STRUCT = jax.ShapeDtypeStruct
ARGUMENTS = [STRUCT((WIDTH, WIDTH), jnp.float32)] * LAYERS, STRUCT((ROWS, WIDTH), jnp.float32)


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def marked_loss(weights: Any, x: Any) -> Any:
    for number, w in enumerate(weights):
        with ipu.scopes.pipeline_stage(max(0, number - LAYERS + 4)):
            x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def scanned_loss(weights: Any, x: Any) -> Any:
    x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, jnp.stack(weights))
    return jnp.mean(x**2)


def report_of(fun: Any, stages: Any, schedule: str = "one_f_one_b") -> Any:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    grad_fn = ipu.pipelining_ops.value_and_grad(
        fun, micro_batches=COUNT, stages=stages, schedule=schedule
    )
    return ipu.compile(grad_fn).lower(*ARGUMENTS).report()


def remedy_of(report: Any) -> str:
    return next((c.remedy for c in report.costs if c.title == "stages of unequal length"), "")


@pytest.mark.parametrize("schedule", ["one_f_one_b", "grouped", "gpipe"])
@pytest.mark.parametrize(("fun", "stages"), [(loss, [1, 2, 3]), (marked_loss, None)])
def test_the_line_gains_what_the_advice_says(fun: Any, stages: Any, schedule: str) -> None:
    before = report_of(fun, stages, schedule)
    found = re.match(
        r"stages=(\[.*?\]) in value_and_grad.* takes ([\d,]+) cycles", remedy_of(before)
    )
    assert found is not None
    after = report_of(loss, ast.literal_eval(found[1]), schedule)
    assert after.cycles == pytest.approx(int(found[2].replace(",", "")), rel=0.015)
    assert after.cycles < 0.75 * before.cycles


def test_a_planned_cut_is_advised_no_further() -> None:
    plan = ipu.plan(
        loss, *ARGUMENTS, ipus=4, micro_batches=COUNT, schedules="grouped", recompute=False
    )
    assert "in value_and_grad" not in remedy_of(report_of(loss, plan, "grouped"))


@pytest.mark.parametrize(
    ("fun", "stages", "schedule"),
    [(scanned_loss, [1, 2, 3], "gpipe"), (loss, [1, 2, 3], "zero_bubble")],
)
def test_the_call_that_plans_makes_an_update_faster(fun: Any, stages: Any, schedule: str) -> None:
    before = report_of(fun, stages, schedule)
    found = re.match(r"value_and_grad\((\w+), \*\*(ipu\.plan.*)\.arguments\), ", remedy_of(before))
    assert found is not None
    assert found[1] == fun.__name__
    plan = eval(found[2], {"ipu": ipu, found[1]: fun, "arguments": ARGUMENTS})
    grad_fn = ipu.pipelining_ops.value_and_grad(fun, **plan.arguments)
    after = ipu.compile(grad_fn).lower(*ARGUMENTS).report()
    assert after.cycles < 0.85 * before.cycles
    assert "ipu.plan" not in remedy_of(after)
