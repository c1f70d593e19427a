"""Steps of torch's optimizers, by torch and by their rules, with the same gradients."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from ipujax.poptorch.optim import rules

SHAPES = {"a": (3, 4), "b": (4,), "c": ()}
Make = Callable[[list[Any]], torch.optim.Optimizer]


@dc.dataclass
class Both:
    """The same parameters, of torch and as arrays by name, which both sides train.

    Attributes:
      parameters: of torch, by name.
      optimizer: torch's.
      rule: of it.
      variables: as the rule leaves them.
      state: of the rule.
      traces: how often the rule was traced.
    """

    parameters: dict[str, torch.nn.Parameter]
    optimizer: torch.optim.Optimizer
    rule: rules.Rule
    variables: dict[str, jax.Array]
    state: Any

    def __post_init__(self) -> None:
        self.traces = 0

        def update(*arguments: Any) -> Any:
            self.traces += 1
            return self.rule.optimizer.update(*arguments)

        self._update = jax.jit(update)

    def train(self, steps: int, seed: int = 0, scale: float = 1.0) -> None:
        """Steps on both sides with random gradients, which the rule is given times `scale`."""
        random = np.random.default_rng(seed)
        for _ in range(steps):
            gradients = {n: random.normal(size=s).astype(np.float32) for n, s in SHAPES.items()}
            for name, parameter in self.parameters.items():
                parameter.grad = torch.tensor(gradients[name], dtype=parameter.dtype)
            self.optimizer.step()
            scaled = {name: scale * gradient for name, gradient in gradients.items()}
            self.step(scaled)

    def step(self, gradients: dict[str, Any]) -> dict[str, jax.Array]:
        """One step of the rule alone; gives what it adds to the variables."""
        changes, self.state = self._update(gradients, self.state, self.variables)
        self.variables = optax.apply_updates(self.variables, changes)  # pyright: ignore
        return changes

    def agree(self, rtol: float = 2e-6, atol: float = 3e-6) -> None:
        """Whether both sides have the same parameters, to the rounding of float32."""
        for name, parameter in self.parameters.items():
            wanted = parameter.detach().numpy()
            np.testing.assert_allclose(self.variables[name], wanted, rtol, atol, err_msg=name)


def parameters_of(seed: int = 7) -> dict[str, torch.nn.Parameter]:
    """Random parameters by name."""
    random = np.random.default_rng(seed)
    return {
        name: torch.nn.Parameter(torch.tensor(random.normal(size=shape), dtype=torch.float32))
        for name, shape in SHAPES.items()
    }


def both(make: Make, parameters: dict[str, torch.nn.Parameter] | None = None) -> Both:
    """Both sides at their start; `make` is given the parameters in the order of `SHAPES`."""
    parameters = parameters or parameters_of()
    optimizer = make(list(parameters.values()))
    rule = rules.build_rule(optimizer, names_of(parameters))
    variables = {name: jnp.array(p.detach().numpy()) for name, p in parameters.items()}
    return Both(parameters, optimizer, rule, variables, rule.optimizer.init(variables))


def names_of(parameters: dict[str, torch.nn.Parameter]) -> dict[int, str]:
    """The names by the parameters' ids."""
    return {id(parameter): name for name, parameter in parameters.items()}
