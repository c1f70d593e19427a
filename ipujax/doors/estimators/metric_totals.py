"""Totals of the loss and of metrics over many steps and replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.workers import Workers
from ipujax.ground import PyTree
from ipujax.operators import Metric
from ipujax.training import Tree, sum_in_64_bits

LOSS = "loss"


class MetricTotals:
    """The sums of the loss and of the totals of metrics, in 64 bits.

    Attributes:
      steps: the number of losses that were added.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._loss = 0.0
        self._totals: dict[str, Tree] | None = None
        self._results: dict[str, Callable[[Tree], object]] = {}

    def add_loss(self, losses: object) -> None:
        """Adds the losses of some steps, an array of any shape."""
        values = np.asarray(losses, np.float64)
        self._loss, self.steps = self._loss + float(values.sum()), self.steps + values.size

    def add_metrics(self, metrics: Mapping[str, Metric], axes: tuple[int, ...] = ()) -> None:
        """Adds the totals of some metrics, summed over the first axes.

        Raises:
          EstimatorError: (a `ValueError`) metrics that differ from those of earlier steps.
        """
        self._results = {name: metric.result for name, metric in metrics.items()}
        totals = {name: metric.totals for name, metric in metrics.items()}
        new = jax.tree.map(lambda array: sum_in_64_bits(array, axes), totals)
        if self._totals is None:
            self._totals = new
            return
        if _describe_shapes(new) != _describe_shapes(self._totals):
            raise check.value_error(
                f"the metrics of a step are {_describe_shapes(new)}, and were "
                f"{_describe_shapes(self._totals)} before",
                "give the same metrics in each step",
            )
        self._totals = jax.tree.map(np.add, self._totals, new)

    def add_other_workers(self, workers: Workers) -> None:
        """Adds the sums of the other workers."""
        local_sums = self.steps, self._loss, self._totals
        steps, loss, self._totals = workers.sum_over_workers(local_sums)
        self.steps, self._loss = int(steps), float(loss)

    def compute_values(self) -> dict[str, PyTree]:
        """Returns each metric, and the mean loss, as NumPy scalars or arrays.

        Raises:
          EstimatorError: (a `ValueError`) nothing was added.
        """
        if not self.steps:
            raise check.value_error(
                "there is nothing to evaluate: no step was made", "give the data set an element"
            )
        totals = self._totals or {}
        values = {name: _to_numpy_value(self._results[name](totals[name])) for name in totals}
        return {LOSS: np.float32(self._loss / self.steps)} | values  # the loss may be a metric


def unstack_tree(tree: Tree, axes: int) -> Iterator[Tree]:
    """Yields the trees that are stacked along the first axes, in their order."""
    leaves = jax.tree.leaves(tree)
    shape = np.shape(leaves[0])[:axes] if leaves else ()
    for index in np.ndindex(*shape):
        yield jax.tree.map(lambda array, index=index: array[index], tree)


def parse_loss(value: object) -> float:
    """Returns the loss that a host function gave: an array, or one of `ipujax.metrics`.

    Raises:
      EstimatorTypeError: (a `TypeError`) a value of another type.
    """
    number = value.result(value.totals) if isinstance(value, Metric) else value
    check.require_array(number, f"the metric `{LOSS}`")  # an array of JAX would lose 64 bits
    return float(np.asarray(number, np.float64).mean())


def check_returned_metrics(returned: Any) -> dict[str, Metric]:
    """Returns the metrics that a host function gave, checked to be a dict of metrics."""
    check.require_instance(returned, dict, "what the function of eval_metrics returns")
    for name, metric in returned.items():
        check.require_instance(metric, Metric, f"the metric `{name}`", "one of ipujax.metrics")
    return returned


def _describe_shapes(totals: Mapping[str, Tree]) -> str:
    shapes = {n: jax.tree.map(lambda x: str(np.shape(x)), t) for n, t in sorted(totals.items())}
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"


def _to_numpy_value(value: object) -> PyTree:
    array = np.asarray(value)
    return array.astype(np.float32)[()] if array.dtype == np.float64 else array[()]
