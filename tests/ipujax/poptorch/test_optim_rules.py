"""Torch's optimizers as functions of JAX: their numbers, and what needs another program."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from ipujax.poptorch import optim  # noqa: E402
from ipujax.poptorch.optim import rules  # noqa: E402
from tests.ipujax.poptorch.stepping import Both, both, names_of, parameters_of  # noqa: E402

T = torch.optim

OPTIMIZERS: list[tuple[Any, dict[str, Any]]] = [
    (T.SGD, {}),
    (T.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    (T.SGD, {"momentum": 0.9, "dampening": 0.3}),
    (T.SGD, {"momentum": 0.9, "nesterov": True, "maximize": True}),
    (T.Adam, {"weight_decay": 0.1}),
    (T.Adam, {"amsgrad": True, "betas": (0.0, 0.5)}),
    (T.AdamW, {"weight_decay": 0.3}),
    (T.AdamW, {"amsgrad": True, "maximize": True}),
    (T.RMSprop, {"weight_decay": 0.1}),
    (T.RMSprop, {"centered": True, "momentum": 0.5}),
    (T.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.1, "weight_decay": 0.1}),
    (T.Adadelta, {"lr": 0.5, "weight_decay": 0.1}),
    (T.Adamax, {"weight_decay": 0.1}),
    (T.NAdam, {"weight_decay": 0.1}),
    (T.NAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    (T.RAdam, {"weight_decay": 0.1}),
    (T.RAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True, "betas": (0.5, 0.99)}),
    (T.ASGD, {"t0": 3.0, "weight_decay": 0.1}),
    (T.Rprop, {}),
    (optim.SGD, {"momentum": 0.0, "dampening": 0.5}),
    (optim.SGD, {"momentum": 0.9, "use_combined_accum": True, "velocity_scaling": 4.0}),
    (optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
    (optim.AdamW, {"eps": 1e-3}),
    (optim.AdamW, {"bias_correction": False, "amsgrad": True, "maximize": True}),
    (optim.RMSprop, {"momentum": 0.0, "centered": True}),
    (optim.LAMB, {}),
    (optim.LAMB, {"bias_correction": False, "max_weight_norm": 0.5, "weight_decay": 0.0}),
]


def named(optimizer: tuple[Any, dict[str, Any]]) -> str:
    kind, given = optimizer
    package = "poptorch." * (kind.__module__.startswith("ipujax"))
    return package + kind.__name__ + "".join(f"-{name}" for name in given)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=named)
def test_steps_are_those_of_torch(optimizer: tuple[Any, dict[str, Any]]) -> None:
    kind, given = optimizer
    sides = both(lambda p: kind(p, **{"lr": 0.02, **given}))
    sides.train(12)
    sides.agree()


rates = st.floats(0.0, 0.999)


@settings(max_examples=15, deadline=None)
@given(
    lr=st.floats(1e-4, 0.1),
    betas=st.tuples(rates, rates),
    eps=st.sampled_from([1e-8, 1e-6, 1e-3]),
    weight_decay=st.floats(0.0, 0.5),
)
def test_any_numbers_of_adam_are_data(
    lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> None:
    numbers = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    sides = both(lambda p: T.Adam(p, **numbers))
    assert sides.rule == both(lambda p: T.Adam(p, lr=1.0)).rule
    sides.train(3)
    sides.agree(atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(
    lr=st.floats(1e-4, 0.1),
    momentum=rates,
    dampening=st.floats(0.0, 1.0),
    weight_decay=st.floats(0.0, 0.5),
)
def test_any_numbers_of_sgd_give_the_steps_of_torch(
    lr: float, momentum: float, dampening: float, weight_decay: float
) -> None:
    sides = both(lambda p: T.SGD(p, lr, momentum, dampening, weight_decay))
    sides.train(3)
    sides.agree()


def test_groups_have_numbers_of_their_own_and_strangers_stay_as_they_are() -> None:
    def make(p: list[Any]) -> Any:
        quick: Any = {"params": [p[0]], "lr": 0.5, "momentum": 0.0}
        return T.SGD([quick, {"params": [p[1]], "maximize": True}], lr=0.1, momentum=0.9)

    sides = both(make)
    before = sides.variables["c"]
    sides.train(5)
    sides.agree()
    assert sides.variables["c"] == before
    assert sides.state["state"].keys() == {"a", "b"}
    assert sides.state["state"]["a"] == {}


def test_frozen_and_unnamed_parameters_are_left_out() -> None:
    parameters = parameters_of()
    parameters["a"].requires_grad_(False)
    names = names_of(parameters)
    del names[id(parameters["b"])]
    rule = rules.build_rule(T.Adam(parameters.values()), names)
    assert [group.names for group in rule.groups] == [("c",)]
    assert rule.load_torch_state(T.Adam(parameters.values()))["state"].keys() == {"c"}


def test_another_learning_rate_compiles_nothing() -> None:
    sides = both(lambda p: T.Adam(p, lr=0.02))
    schedule = T.lr_scheduler.ExponentialLR(sides.optimizer, 0.5)
    for seed in range(4):
        sides.train(1, seed)
        schedule.step()
        sides.state = rules.replace_state_hyperparameters(
            sides.state, sides.rule.read_hyperparameters(sides.optimizer)
        )
    sides.agree()
    assert sides.traces == 1


def test_a_learning_rate_may_be_a_tensor() -> None:
    sides = both(lambda p: T.SGD(p, lr=torch.tensor(0.25)))
    sides.train(2)
    sides.agree()


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"lr": 0.5, "weight_decay": 0.1, "dampening": 0.0}, True),
        ({"momentum": 0.9}, False),
        ({"maximize": True}, False),
    ],
)
def test_rules_differ_where_another_program_is_needed(change: dict[str, Any], same: bool) -> None:
    parameters = parameters_of()
    names = names_of(parameters)
    one = rules.build_rule(T.SGD(parameters.values(), lr=0.1), names)
    other = rules.build_rule(T.SGD(parameters.values(), **{"lr": 0.1, **change}), names)
    assert (one == other) is same
    assert (hash(one) == hash(other)) is same


def test_a_variable_momentum_keeps_velocities_while_it_is_zero() -> None:
    parameters = parameters_of()
    names = names_of(parameters)
    optimizer = optim.SGD(parameters.values(), lr=0.1)
    plain = rules.build_rule(optimizer, names)
    optimizer.variable_attrs.markAsVariable("momentum")
    variable = rules.build_rule(optimizer, names)
    assert plain != variable
    optimizer.param_groups[0]["momentum"] = 0.5
    assert rules.build_rule(optimizer, names) == variable


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_the_loss_scale_is_taken_out_again(scale: float) -> None:
    sides = both(lambda p: optim.SGD(p, lr=0.1, loss_scaling=scale))
    assert sides.rule.loss_scale(sides.state) == scale
    sides.train(3, scale=scale)
    sides.agree()


@pytest.mark.parametrize("largest", [0.01, 100.0])
def test_gradients_are_clipped_as_torch_does(largest: float) -> None:
    sides = both(lambda p: optim.SGD(p, lr=0.1, max_grad_norm=largest))
    expected: Both = both(lambda p: T.SGD(p, lr=0.1))
    random = np.random.default_rng(1)
    gradients = {n: random.normal(size=p.shape) for n, p in expected.parameters.items()}
    for name, parameter in expected.parameters.items():
        parameter.grad = torch.tensor(gradients[name], dtype=torch.float32)
    torch.nn.utils.clip_grad_norm_(expected.parameters.values(), largest)
    expected.optimizer.step()
    sides.step(gradients)
    expected.variables = sides.variables
    expected.agree()


def test_moments_are_kept_in_their_dtypes() -> None:
    half = torch.float16
    sides = both(lambda p: optim.Adam(p, lr=0.02, first_order_momentum_accum_type=half))
    sides.train(5)
    kept = sides.state["state"]["a"]
    assert (kept["exp_avg"].dtype, kept["exp_avg_sq"].dtype) == ("float16", "float32")
    sides.agree(atol=1e-4)
    with pytest.raises(AssertionError):
        sides.agree()


def test_an_accumulator_has_the_dtype_that_was_asked_for() -> None:
    parameters = parameters_of()
    optimizer = optim.SGD(parameters.values(), 0.1, accum_type=torch.float16)
    assert rules.build_rule(optimizer, names_of(parameters)).accumulator == "float16"
    assert both(lambda p: T.SGD(p, 0.1)).rule.accumulator == "float32"


def test_half_parameters_are_trained_in_single_precision() -> None:
    parameters = {"a": torch.nn.Parameter(torch.ones(3, dtype=torch.float16))}
    sides = both(lambda p: T.SGD(p, lr=0.125, momentum=0.5), parameters)
    gradient = {"a": jnp.full(3, 1e-3, jnp.float16)}
    changes = sides.step(gradient)
    velocity = sides.state["state"]["a"]["momentum_buffer"]
    assert (changes["a"].dtype, velocity.dtype) == ("float32", "float32")
    assert sides.variables["a"].dtype == "float16"


def lamb_by_the_paper(steps: int) -> list[np.ndarray[Any, Any]]:
    """Algorithm 2 of arXiv 1904.00962, in double precision, for the gradients of `Both.train`."""
    sides = both(lambda p: optim.LAMB(p))
    x = [p.detach().double().numpy() for p in sides.parameters.values()]
    m, v = [0 * each for each in x], [0 * each for each in x]
    random = np.random.default_rng(0)
    for t in range(1, steps + 1):
        for i, shape in enumerate(each.shape for each in x):
            g = random.normal(size=shape).astype(np.float32).astype(np.float64)
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g * g
            r = (m[i] / (1 - 0.9**t)) / (np.sqrt(v[i] / (1 - 0.999**t)) + 1e-8)
            direction = r + 0.25 * x[i]
            phi = min(np.linalg.norm(x[i]), 2.0)
            x[i] = x[i] - 0.02 * phi / np.linalg.norm(direction) * direction
    return x


def test_lamb_is_that_of_the_paper_on_both_sides() -> None:
    sides = both(lambda p: optim.LAMB(p, lr=0.02, weight_decay=0.25, max_weight_norm=2.0))
    sides.train(6)
    sides.agree()
    for got, wanted in zip(sides.variables.values(), lamb_by_the_paper(6), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)


def test_lamb_changes_a_parameter_of_zeros_by_plain_steps() -> None:
    parameters = {"a": torch.nn.Parameter(torch.zeros(3, 4))}
    sides = both(lambda p: optim.LAMB(p, lr=0.5, weight_decay=0.0), parameters)
    assert not sides.step({"a": jnp.zeros((3, 4))})["a"].any()
    sides = both(lambda p: optim.LAMB(p, lr=0.5, weight_decay=0.0), parameters)
    np.testing.assert_allclose(sides.step({"a": jnp.ones((3, 4))})["a"], -0.5, 1e-6)


def test_adamw_without_bias_correction_takes_the_means_as_they_are() -> None:
    parameters = {"a": torch.nn.Parameter(torch.zeros(()))}
    sides = both(lambda p: optim.AdamW(p, lr=1.0, bias_correction=False), parameters)
    np.testing.assert_allclose(sides.step({"a": jnp.ones(())})["a"], -0.1 / np.sqrt(0.001), 1e-6)


def test_rmsprop_as_tensorflow_computes_it() -> None:
    parameters = {"a": torch.nn.Parameter(torch.zeros(()))}

    def make(p: Any) -> Any:
        return optim.RMSprop(
            p, lr=0.1, alpha=0.75, eps=0.5, momentum=0.5, centered=True, use_tf_variant=True
        )

    sides = both(make, parameters)
    square, average, velocity = 1.0, 0.0, 0.0
    for g in (2.0, -1.0):
        square = 0.75 * square + 0.25 * g * g
        average = 0.75 * average + 0.25 * g
        velocity = 0.5 * velocity + 0.1 * g / np.sqrt(square - average**2 + 0.5)
        np.testing.assert_allclose(sides.step({"a": jnp.float32(g)})["a"], -velocity, 1e-5)


def test_an_optimizer_with_a_step_of_its_own_is_refused() -> None:
    class Strange(T.SGD):
        def step(self, closure: Any = None) -> Any:
            """A step that no program has."""

    class Plain(T.SGD):
        """Attributes alone."""

    parameters = parameters_of()
    wanted = "Strange has a `step` of its own beside SGD's.*poptorch.optim: ASGD, .*SGD"
    with pytest.raises(poptorch.Error, match=re.compile(wanted, re.DOTALL)):
        rules.build_rule(Strange(parameters.values(), lr=0.1), names_of(parameters))
    assert rules.build_rule(Plain(parameters.values(), lr=0.1), {}).kind == "SGD"


def test_what_is_not_known_is_refused_with_what_is() -> None:
    with pytest.raises(poptorch.Error, match="LBFGS is not known"):
        rules.build_rule(T.LBFGS(parameters_of().values()), {})
    with pytest.raises(TypeError, match=r"an optimizer of torch\.optim"):
        rules.build_rule(optax.sgd(0.1), {})  # pyright: ignore
