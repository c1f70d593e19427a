"""The state of torch's optimizers, there and back: `state_dict`, checkpoints, other optimizers."""

from __future__ import annotations

import copy
import io
import logging
from typing import Any

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ipujax.errors import OptimizerStateError  # noqa: E402
from ipujax.poptorch import optim  # noqa: E402
from ipujax.poptorch.optim import rules  # noqa: E402
from ipujax.poptorch.optim.link import OptimizerLink  # noqa: E402
from ipujax.poptorch.optim.optimizer_log import OptimizerLog  # noqa: E402
from tests.ipujax.poptorch.stepping import (  # noqa: E402
    Both,
    both,
    names_of,
    parameters_of,
)

T = torch.optim

KEPT: list[tuple[Any, dict[str, Any]]] = [
    (T.SGD, {}),
    (T.SGD, {"momentum": 0.9}),
    (T.SGD, {"momentum": 0.9, "dampening": 0.5}),
    (T.Adam, {"amsgrad": True}),
    (T.RMSprop, {"centered": True, "momentum": 0.5}),
    (T.NAdam, {}),
    (T.ASGD, {"t0": 2.0}),
    (T.Rprop, {}),
    (optim.LAMB, {}),
    (optim.Adam, {}),
]


def equal(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), one, other)


def linked(sides: Both) -> OptimizerLink:
    """A link between a rule's state, as a program has it, and its optimizer."""
    return OptimizerLink(
        sides.optimizer, names_of(sides.parameters), lambda: sides.state, OptimizerLog()
    )


@pytest.mark.parametrize("optimizer", KEPT, ids=lambda o: f"{o[0].__name__}{len(o[1])}")
def test_torch_goes_on_where_the_rule_was_and_the_other_way_round(
    optimizer: tuple[Any, dict[str, Any]],
) -> None:
    kind, given = optimizer
    sides = both(lambda p: kind(p, lr=0.02, **given))
    sides.train(3)
    sides.rule.store_torch_state(sides.optimizer, sides.state)
    sides.train(2, seed=1)
    sides.agree()
    sides.state = sides.rule.load_torch_state(sides.optimizer)
    sides.train(2, seed=2)
    sides.agree()


def test_a_fresh_state_is_what_torch_begins_with() -> None:
    for kind, given in KEPT:
        sides = both(lambda p, kind=kind, given=given: kind(p, lr=0.02, **given))
        equal(sides.rule.load_torch_state(sides.optimizer), sides.state)
        sides.rule.store_torch_state(sides.optimizer, sides.state)
        assert all("step" not in kept for kept in sides.optimizer.state.values())


def test_state_dict_is_that_of_the_program() -> None:
    sides, alone = (both(lambda p: T.Adam(p, lr=0.02)) for _ in range(2))
    link = linked(sides)
    sides.state = link.start_program_state()
    assert sides.optimizer.state_dict()["state"] == {}
    random = np.random.default_rng(0)
    gradients = {name: random.normal(size=v.shape) for name, v in sides.variables.items()}
    for name, parameter in alone.parameters.items():
        parameter.grad = torch.tensor(gradients[name], dtype=torch.float32)
    alone.optimizer.step()
    sides.step(gradients)
    link.mark_program_newer()
    got, wanted = (each.optimizer.state_dict()["state"] for each in (sides, alone))
    for index, kept in wanted.items():
        assert kept.keys() == got[index].keys()
        for name, value in kept.items():
            torch.testing.assert_close(got[index][name], value)


def test_what_is_loaded_is_what_the_program_runs_with_next() -> None:
    sides = both(lambda p: T.Adam(p, lr=0.02))
    link = linked(sides)
    sides.state = link.start_program_state()
    sides.train(2)
    link.mark_program_newer()
    saved, before = copy.deepcopy(sides.optimizer.state_dict()), sides.state
    sides.train(2)
    link.mark_program_newer()
    saved["param_groups"][0]["lr"] = 0.5
    sides.optimizer.load_state_dict(saved)
    sides.state = link.take_loaded_state(sides.state)
    equal(sides.state["state"], before["state"])
    assert sides.state["hyper"]["groups"][0]["lr"] == 0.5
    assert link.take_loaded_state(sides.state) is sides.state
    saved["param_groups"][0]["amsgrad"] = True
    sides.optimizer.load_state_dict(saved)
    with pytest.raises(OptimizerStateError, match=r"(?s)another program.*setOptimizer"):
        link.take_loaded_state(sides.state)


def test_closing_reads_the_state_once_more_and_leaves_the_optimizer_alone() -> None:
    sides = both(lambda p: optim.SGD(p, lr=0.02, momentum=0.5))
    link = linked(sides)
    sides.state = link.start_program_state()
    sides.train(1)
    link.mark_program_newer()
    link.release_optimizer()
    equal(sides.rule.load_torch_state(sides.optimizer), sides.state)
    kept = sides.optimizer.state_dict()["ipu_state"]
    sides.train(1)
    link.mark_program_newer()
    assert sides.optimizer.state_dict()["ipu_state"]["Accl1___a"] is kept["Accl1___a"]


def test_another_optimizer_goes_on_with_what_both_keep() -> None:
    sides = both(lambda p: T.Adam(p, lr=0.02))
    sides.train(2)
    names = names_of(sides.parameters)
    other = T.Adam(sides.parameters.values(), lr=0.5, amsgrad=True)
    state = OptimizerLink(other, names, dict, OptimizerLog()).start_program_state(sides.state)
    kept = state["state"]["a"]
    equal({name: kept[name] for name in sides.state["state"]["a"]}, sides.state["state"]["a"])
    assert not kept["max_exp_avg_sq"].any()
    assert state["hyper"]["groups"][0]["lr"] == 0.5
    stated = OptimizerLink(sides.optimizer, names, dict, OptimizerLog()).start_program_state(
        sides.state
    )
    equal(stated, sides.rule.load_torch_state(sides.optimizer))


def test_the_state_of_poptorch_has_the_names_of_popart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "poptorch::python")
    sides = both(lambda p: optim.AdamW(p, lr=0.25, weight_decay=0.5, loss_scaling=2.0))
    optimizer: Any = sides.optimizer
    assert optimizer.state_dict()["ipu_state"] is None
    link = linked(sides)
    sides.state = link.start_program_state()
    link.mark_program_newer()
    before = optimizer.state_dict()
    wanted = {f"{kind}___{n}" for kind in ("Accl1", "Accl2", "Step") for n in sides.parameters}
    assert before["ipu_state"].keys() == wanted
    assert before["ipu_param"]["lossScaling_FLOAT"] == 2.0
    assert before["ipu_param"]["learningRate___specific___a"] == 0.25
    assert before["ipu_param"]["weightDecay___specific___b"] == 0.5
    assert "Using cached" not in caplog.text
    optimizer.state_dict()
    assert "Using cached optimiser state dict" in caplog.text
    sides.train(1, scale=2.0)
    link.mark_program_newer()
    after = optimizer.state_dict()
    assert not torch.equal(before["ipu_state"]["Accl1___a"], after["ipu_state"]["Accl1___a"])
    torch.testing.assert_close(after["ipu_state"]["Accl1___a"], after["state"][0]["exp_avg"])


def test_sgd_reports_the_numbers_that_popart_made_of_its_own() -> None:
    sides = both(lambda p: optim.SGD(p, lr=0.5, weight_decay=0.25, loss_scaling=4.0))
    linked(sides).start_program_state()
    sides.rule.store_torch_state(sides.optimizer, sides.state)
    named = sides.optimizer.state_dict()["ipu_param"]
    assert named["scaledLearningRate0___specific___a"] == 0.125
    assert named["weightDecayScaleFactor0___specific___a"] == 1 - 0.125


def test_a_checkpoint_of_poptorch_is_loaded_by_a_new_optimizer() -> None:
    sides = both(lambda p: optim.Adam(p, lr=0.02))
    sides.state = linked(sides).start_program_state()
    sides.train(2)
    sides.rule.store_torch_state(sides.optimizer, sides.state)
    file = io.BytesIO()
    torch.save(sides.optimizer.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    state["ipu_state"]["Accl1___a"] = torch.full((3, 4), 0.5)
    del state["ipu_state"]["Accl2___b"]
    fresh: Any = optim.Adam(sides.parameters.values(), lr=0.5)
    fresh.load_state_dict(state)
    assert torch.equal(fresh.state_dict()["ipu_state"]["Accl1___a"], torch.full((3, 4), 0.5))
    got = OptimizerLink(
        fresh, names_of(sides.parameters), dict, OptimizerLog()
    ).start_program_state()
    assert (got["state"]["a"]["exp_avg"] == 0.5).all()
    equal(got["state"]["b"], sides.state["state"]["b"])
    assert got["hyper"]["groups"][0]["lr"] == np.float32(0.02)
    assert not fresh.ipu_state_is_dirty


def test_loaded_numbers_are_reported_until_the_optimizer_has_others() -> None:
    sides = both(lambda p: optim.Adam(p, lr=0.5))
    link = linked(sides)
    sides.state = link.start_program_state()
    link.mark_program_newer()
    optimizer: Any = sides.optimizer
    state = optimizer.state_dict()
    state["ipu_param"] = {"learningRate___specific___a": torch.tensor(3.0)}
    optimizer.load_state_dict(state)
    sides.state = link.take_loaded_state(sides.state)
    link.mark_program_newer()
    assert optimizer.state_dict()["ipu_param"]["learningRate___specific___a"] == 3.0
    assert optimizer.state_dict()["ipu_param"]["learningRate___specific___b"] == 0.5
    optimizer.param_groups[0]["lr"] = 0.25
    sides.state = rules.replace_state_hyperparameters(
        sides.state, sides.rule.read_hyperparameters(optimizer)
    )
    link.mark_program_newer()
    assert optimizer.state_dict()["ipu_param"]["learningRate___specific___a"] == 0.25


def test_a_state_of_another_module_is_refused_with_its_name() -> None:
    sides = both(lambda p: T.Adam(p, lr=0.02))
    sides.train(1)
    state = sides.optimizer.state_dict()
    state["state"][1]["exp_avg"] = torch.zeros(7)
    sides.optimizer.load_state_dict(state)
    with pytest.raises(OptimizerStateError, match=r"exp_avg of 'b' has shape \(7,\).*\(4,\)"):
        sides.rule.load_torch_state(sides.optimizer)


def test_what_torch_alone_made_is_refused_by_poptorchs_optimizers() -> None:
    optimizer = optim.Adam(parameters_of().values())
    with pytest.raises(RuntimeError, match="because it is empty"):
        optimizer.load_state_dict({})
    with pytest.raises(RuntimeError, match="Only IPU optimizer states can be loaded"):
        optimizer.load_state_dict(T.Adam(parameters_of().values()).state_dict())
