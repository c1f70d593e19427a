"""Metrics of evaluations: totals summed on the device, and values computed from them at the end.

    metric = ipu.metrics.accuracy(labels, predictions)     # of a batch, in a model
    totals = jax.tree.map(jnp.add, totals, metric.totals)   # over steps, and over replicas
    metric.result(totals)                                  # of all of them

Estimators do the summing. The functions are called as those of `tf.metrics`; sums are float32, and
values are, whatever the dtypes of labels and predictions. Source: TensorFlow 1.15 API, tf.metrics.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
