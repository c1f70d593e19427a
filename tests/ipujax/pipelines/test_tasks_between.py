"""Schedules with tasks R, O and L, and with branches, train as the plain step does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.engine import remote_storage
from ipujax.schedules import Schedule, ScheduleError
from lowering import ir
from tests.between import EXTRAS, add_between
from tests.ipujax.pipelining import ENGINES
from tests.numbers import use_ipus

STAGES, MICRO_BATCHES = 4, 8
NAMED = {
    "one_f_one_b": [0, 1, 2, 3],
    "zero_bubble": [0, 1, 2, 3],
    "chimera": [0, 1, 2, 3],
    "zbv": [0, 1, 1, 0],
}


def loss_fn(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    for stage, w in enumerate(weights):
        with ipu.scopes.pipeline_stage(stage):
            x = jnp.tanh(jnp.sin(x @ w) @ w)
    with ipu.scopes.pipeline_stage(STAGES - 1):
        return jnp.mean((x - y) ** 2)


def branching_loss(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    with ipu.scopes.pipeline_stage(0):
        h = jnp.tanh(x @ weights[0])
    with ipu.scopes.pipeline_stage(1):
        left = jnp.tanh(h @ weights[1])
    with ipu.scopes.pipeline_stage(2):
        right = jnp.sin(h @ weights[2])
    with ipu.scopes.pipeline_stage(3):
        return jnp.mean((jnp.tanh((left + right) @ weights[3]) - y) ** 2)


def sample(size: int = 8) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    weights = [
        random.normal(size=(size, size), scale=0.4).astype(np.float32) for _ in range(STAGES)
    ]
    x, y = (random.normal(size=(16, size)).astype(np.float32) for _ in range(2))
    return weights, x, y


def extended(name: str, extras: tuple[str, ...] = EXTRAS) -> Callable[..., Any]:
    def build(stages: int, micro_batches: int) -> Any:
        base = getattr(schedules, name)(stages, micro_batches)
        orders = add_between(base, extras)
        return schedules.from_orders(
            "more", orders, stages=stages, micro_batches=micro_batches, ipus=base.ipus
        )

    return build


def gradient_function(schedule: Any, loss: Any = loss_fn, **arguments: Any) -> Any:
    return ipu.pipelining_ops.value_and_grad(
        loss, micro_batches=MICRO_BATCHES, schedule=schedule, **arguments
    )


def check_like_plain(function: Any, arguments: Any, loss: Any = loss_fn) -> None:
    found, gradients = function(*arguments)
    wanted, plain_gradients = jax.jit(jax.value_and_grad(loss))(*arguments)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    for one, other in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(other).max())


@pytest.mark.sampled(4, 16)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", [{}, {"recompute": True}, {"offload": True}], ids=str)
@pytest.mark.parametrize("name", NAMED)
def test_gradients_are_those_of_the_plain_step(
    name: str, options: dict[str, bool], engine: str
) -> None:
    use_ipus(max(NAMED[name]) + 1)
    function = gradient_function(extended(name), device_mapping=NAMED[name], **options)
    check_like_plain(ipu.compile(function, engine=engine), sample())


def schedules_of(executable: Any) -> list[Schedule]:
    nodes = ir.walk_nodes(executable.program.body)
    return [node.schedule for node in nodes if isinstance(node, ir.Pipeline)]


def program_of(extras: str) -> tuple[ir.Program, Any]:
    use_ipus(4)
    schedule = extended("one_f_one_b", (extras,))
    lowered = ipu.compile(gradient_function(schedule), engine="replay").lower(*sample(64))
    return lowered.compile().program, lowered.report()


def test_tasks_are_those_of_the_table_and_their_bytes_are_modelled() -> None:
    plain, plain_report = program_of("")
    again, again_report = program_of("R")
    away, away_report = program_of("OL")
    kinds = [
        [(n.spec.kind.value, n.spec.stage) for n in ir.walk_nodes(p.body) if isinstance(n, ir.Task)]
        for p in (plain, again, away)
    ]
    assert kinds[0] == [("F", s) for s in range(4)] + [("B", s) for s in (3, 2, 1, 0)]
    assert kinds[1][4:] == [(k, s) for s in (3, 2, 1, 0) for k in "RB"]
    assert kinds[2][:8] == [(k, s) for s in range(4) for k in "FO"]
    assert kinds[2][8:] == [(k, s) for s in (3, 2, 1, 0) for k in "LB"]
    waiting = [
        report.memory.by_category["fifos"] for report in (plain_report, again_report, away_report)
    ]
    assert waiting[0] > 1.5 * waiting[1] > 0
    assert waiting[2] == 0
    cycles = [report.cycles for report in (plain_report, again_report, away_report)]
    assert cycles[0] < cycles[1]
    assert cycles[0] < cycles[2]
    stored = [report.memory.remote_bytes for report in (plain_report, again_report, away_report)]
    assert stored[0].sum() == stored[1].sum() == 0
    # Stage 0 has four micro-batches in flight, stage 1 three: while one is at work, others wait.
    shallow = stored[2][2]
    assert stored[2][1] == 2 * shallow
    assert stored[2][0] > 2 * shallow


def test_offloaded_values_leave_the_device_between_the_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def has_none(placement: Any, ipu: int) -> bool:
        asked.append(ipu)
        return False

    monkeypatch.setattr(remote_storage, "_has_remote_memory", has_none)
    use_ipus(4)
    check_like_plain(
        ipu.compile(gradient_function(extended("one_f_one_b", ("OL", ""))), engine="replay"),
        sample(),
    )
    assert {0, 2} == set(asked)


@pytest.mark.parametrize("engine", ENGINES)
def test_saved_executables_have_them(engine: str, tmp_path: Path) -> None:
    use_ipus(4)
    arguments = sample()
    function = gradient_function(extended("one_f_one_b"))
    executable = ipu.compile(function, engine=engine).lower(*arguments).compile()
    executable.save(tmp_path / "saved")
    loaded = ipu.load_executable(tmp_path / "saved")
    assert loaded.as_text() == executable.as_text()
    assert schedules_of(loaded) == schedules_of(executable)
    check_like_plain(loaded, arguments)


def branches(needs: Any, ipus: tuple[int, ...]) -> Callable[..., Schedule]:
    """All forward tasks first; stage 2 before stage 1 where they share an IPU."""

    def build(stages: int, micro_batches: int) -> Schedule:
        numbers = range(micro_batches)
        orders: dict[int, list[str]] = {place: [] for place in ipus}
        for phase, order in (("F", (0, 2, 1, 3)), ("B", (3, 1, 2, 0))):
            for place in orders:
                own = [stage for stage in order if ipus[stage] == place]
                orders[place] += [f"{s}{phase}{n}" for n in numbers for s in own]
        return schedules.from_orders(
            "branches",
            orders,
            stages=stages,
            micro_batches=micro_batches,
            needs=needs,
            ipus=ipus,
        )

    return build


BRANCHES = {"2F": ["0F"], "3F": ["1F", "2F"]}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ipus", [(0, 1, 2, 3), (0, 1, 1, 0)], ids=str)
def test_branches_run_in_either_order(ipus: tuple[int, ...], engine: str) -> None:
    use_ipus(max(ipus) + 1)
    schedule = branches(BRANCHES, ipus)
    function = gradient_function(schedule, branching_loss, device_mapping=list(ipus))
    check_like_plain(ipu.compile(function, engine=engine), sample(), branching_loss)
    report = ipu.compile(function).lower(*sample()).report()
    chain = gradient_function("gpipe", branching_loss)
    if ipus == (0, 1, 2, 3):
        assert report.cycles < ipu.compile(chain).lower(*sample()).report().cycles


def test_saved_executables_keep_the_table(tmp_path: Path) -> None:
    use_ipus(4)
    function = gradient_function(branches(BRANCHES, (0, 1, 2, 3)), branching_loss)
    executable = ipu.compile(function, engine="replay").lower(*sample()).compile()
    executable.save(tmp_path / "saved")
    loaded = ipu.load_executable(tmp_path / "saved")
    assert schedules_of(loaded) == schedules_of(executable)
    assert schedules_of(loaded)[0].needs_table
    check_like_plain(loaded, sample(), branching_loss)


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ({"2F": ["0F"]}, "3F reads what 1F makes"),
        ({"3F": ["1F"]}, "3F reads what 2F makes"),
        ({**BRANCHES, "0B": ["1B"]}, "0B reads what 2B makes"),
    ],
)
def test_a_table_without_what_tasks_read_is_refused(needs: Any, message: str) -> None:
    use_ipus(4)
    function = gradient_function(branches(needs, (0, 1, 2, 3)), branching_loss)
    with pytest.raises(ScheduleError, match=message):
        ipu.compile(function).lower(*sample())
