"""The classes of `poptorch.optim`: arguments, defaults, variable attributes, copies."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from ipujax.poptorch import optim  # noqa: E402

T = torch.optim
HALF = torch.float16
ALL: list[Any] = [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB]


def parameters() -> list[Any]:
    return [torch.nn.Parameter(torch.ones(2))]


@pytest.mark.parametrize("kind", ALL, ids=lambda k: k.__name__)
def test_what_was_given_is_variable(kind: Any) -> None:
    optimizer = kind(parameters(), lr=0.5, weight_decay=0.0)
    attributes = optimizer.variable_attrs
    assert not attributes.isConstant("lr")
    assert not attributes.isConstant("weight_decay")
    assert attributes.isConstant("loss_scaling")
    attributes.markAsVariable("loss_scaling")
    attributes.markAsVariable("loss_scaling")
    assert not attributes.isConstant("loss_scaling")
    attributes.markAsConstant("loss_scaling")
    assert attributes.isConstant("loss_scaling")
    with pytest.raises(poptorch.Error, match=r"(?s)no attribute 'speed'.*loss_scaling, lr"):
        attributes.markAsVariable("speed")
    with pytest.raises(poptorch.Error, match="no attribute 'speed'"):
        attributes.markAsConstant("speed")


@pytest.mark.parametrize("kind", ALL, ids=lambda k: k.__name__)
def test_defaults_are_those_of_torch_and_what_is_added_changes_nothing(kind: Any) -> None:
    optimizer = kind(parameters(), lr=0.5)
    assert isinstance(optimizer, optim.Optimizer)
    assert (optimizer.loss_scaling, optimizer.accum_type) == (1.0, torch.float32)
    assert getattr(optimizer, "max_grad_norm", math.inf) == math.inf
    if kind is not optim.LAMB:
        theirs = getattr(T, kind.__name__)
        assert isinstance(optimizer, theirs)
        assert optimizer.defaults == theirs(parameters(), lr=0.5).defaults


def test_lamb_has_the_defaults_of_the_original() -> None:
    wanted = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2}
    assert optim.LAMB(parameters()).defaults == {**wanted, "max_weight_norm": 65500.0}
    assert optim.LAMB(parameters(), max_weight_norm=3.0).defaults["max_weight_norm"] == 3.0


def test_velocity_scaling_belongs_to_groups_of_the_combined_variant() -> None:
    combined = optim.SGD(parameters(), 0.5, use_combined_accum=True, velocity_scaling=2.0)
    assert combined.param_groups[0]["velocity_scaling"] == 2.0
    assert "velocity_scaling" not in optim.SGD(parameters(), 0.5).param_groups[0]


def test_a_velocity_scaling_of_no_use_is_told(caplog: pytest.LogCaptureFixture) -> None:
    optim.SGD(parameters(), 0.5, velocity_scaling=2.0)
    assert "velocity_scaling" in caplog.text


def pickled(optimizer: Any) -> Any:
    return pickle.loads(pickle.dumps(optimizer))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_copies_have_what_poptorch_added(copied: Any) -> None:
    optimizer = optim.AdamW(
        parameters(),
        loss_scaling=4.0,
        bias_correction=False,
        accum_type=HALF,
        first_order_momentum_accum_type=HALF,
        max_grad_norm=2.0,
    )
    other: Any = copied(optimizer)
    names = ("loss_scaling", "bias_correction", "accum_type", "max_grad_norm")
    assert [getattr(other, n) for n in names] == [4.0, False, HALF, 2.0]
    assert other.first_order_momentum_accum_type is HALF
    assert not other.variable_attrs.isConstant("loss_scaling")
    assert other.state_dict()["ipu_state"] is None


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"accum_type": torch.float64}, "accum_type of Adam is torch.float64"),
        ({"second_order_momentum_accum_type": torch.int32}, "float16 or float32"),
        ({"max_grad_norm": math.nan}, "max_grad_norm of Adam is nan"),
        ({"max_grad_norm": 0.0}, "give a positive number"),
        ({"loss_scaling": 0.0}, "loss_scaling of Adam is 0.0"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], wanted: str) -> None:
    with pytest.raises(poptorch.Error, match=wanted):
        optim.Adam(parameters(), **given)


def test_lamb_steps_on_the_host_by_a_closure_too() -> None:
    (parameter,) = parameters()
    optimizer = optim.LAMB([parameter], lr=0.5, weight_decay=0.0)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = parameter.sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 2.0
    torch.testing.assert_close(parameter.data, torch.full((2,), 0.5))
