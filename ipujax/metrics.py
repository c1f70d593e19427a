"""Metrics of evaluations: totals summed on the device, and values computed from them at the end.

    metric = ipu.metrics.accuracy(labels, predictions)     # of a batch, in a model
    totals = jax.tree.map(jnp.add, totals, metric.totals)   # over steps, and over replicas
    metric.result(totals)                                  # of all of them

Estimators do the summing. The functions are called as those of `tf.metrics`; sums are float32, and
values are, whatever the dtypes of labels and predictions. Source: TensorFlow 1.15 API, tf.metrics.
"""

from __future__ import annotations

from ipujax.operators import metrics as _metrics

__all__ = [
    "Metric",
    "accuracy",
    "mean",
    "mean_squared_error",
    "precision",
    "recall",
    "recall_at_k",
    "root_mean_squared_error",
]


def __dir__() -> list[str]:
    return __all__


Metric = _metrics.Metric
accuracy = _metrics.accuracy
mean = _metrics.mean
mean_squared_error = _metrics.mean_squared_error
precision = _metrics.precision
recall = _metrics.recall
recall_at_k = _metrics.recall_at_k
root_mean_squared_error = _metrics.root_mean_squared_error
