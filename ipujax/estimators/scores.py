"""Metrics over many steps and replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from ipujax.estimators.checks import check
from ipujax.estimators.workers import Workers
from ipujax.metrics import Metric
from ipujax.training.inference import summed
from ipujax.training.state import Tree

LOSS = "loss"


class Scores:
    """Sums of the loss and of the totals of metrics, in 64 bits.

    Attributes:
      steps: how often a loss was added.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._loss = 0.0
        self._totals: dict[str, Tree] | None = None
        self._results: dict[str, Callable[[Tree], Any]] = {}

    def add_loss(self, losses: Any) -> None:
        """The losses of some steps, an array of any shape."""
        values = np.asarray(losses, np.float64)
        self._loss, self.steps = self._loss + float(values.sum()), self.steps + values.size

    def add(self, metrics: Mapping[str, Metric], axes: tuple[int, ...] = ()) -> None:
        """Totals of some metrics, summed over the first axes.

        Raises:
          EstimatorError: (a `ValueError`) other metrics than before.
        """
        self._results = {name: metric.result for name, metric in metrics.items()}
        totals = {name: metric.totals for name, metric in metrics.items()}
        new = jax.tree.map(lambda x: summed(x, axes), totals)
        if self._totals is None:
            self._totals = new
            return
        if _form(new) != _form(self._totals):
            raise check.refuse(
                f"the metrics of a step are {_form(new)}, and were {_form(self._totals)} before",
                "give the same metrics in each step",
            )
        self._totals = jax.tree.map(np.add, self._totals, new)

    def add_up(self, workers: Workers) -> None:
        """Adds what the other workers have."""
        own = self.steps, self._loss, self._totals
        steps, loss, self._totals = workers.summed(own)
        self.steps, self._loss = int(steps), float(loss)

    def values(self) -> dict[str, Any]:
        """Each metric, and the mean loss, NumPy scalars or arrays.

        Raises:
          EstimatorError: (a `ValueError`) nothing was added.
        """
        if not self.steps:
            raise check.refuse(
                "there is nothing to evaluate: no step was made", "give the data set an element"
            )
        totals = self._totals or {}
        values = {name: _scalar(self._results[name](totals[name])) for name in totals}
        return {LOSS: np.float32(self._loss / self.steps)} | values  # the loss may be a metric


def unstacked(tree: Tree, axes: int) -> Iterator[Tree]:
    """The trees that are stacked along the first axes, in their order."""
    leaves = jax.tree.leaves(tree)
    shape = np.shape(leaves[0])[:axes] if leaves else ()
    for index in np.ndindex(*shape):
        yield jax.tree.map(lambda x, index=index: x[index], tree)


def loss_of(value: Any) -> float:
    """Returns the loss that a function of the host gave: an array, or one of `ipujax.metrics`.

    Raises:
      EstimatorTypeError: (a `TypeError`) something else.
    """
    number = value.result(value.totals) if isinstance(value, Metric) else value
    check.array(number, f"the metric `{LOSS}`")  # which would make 64 bits 32
    return float(np.asarray(number, np.float64).mean())


def metrics_of(returned: Any) -> dict[str, Metric]:
    """What a function of the host gave, if it is a dict of metrics."""
    check.instance(returned, dict, "what the function of eval_metrics returns")
    for name, metric in returned.items():
        check.instance(metric, Metric, f"the metric `{name}`", "one of ipujax.metrics")
    return returned


def _form(totals: Mapping[str, Tree]) -> str:
    shapes = {n: jax.tree.map(lambda x: str(np.shape(x)), t) for n, t in sorted(totals.items())}
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"


def _scalar(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.float32)[()] if array.dtype == np.float64 else array[()]
