"""Losses that look at a sample of the classes instead of all."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.checks.arrays import check
from ipujax.operators.nn.candidates import Candidates, sample
from ipujax.operators.random_keys import draw_key


@check.guard
def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str | None = "sampled_softmax_loss",
    seed: Any = None,
    *,
    key: Any = None,
) -> jax.Array:
    """The softmax cross entropy of the true classes among those and a sample of others.

    Seed 001, 18.14.7. Each class's logit is lowered by the logarithm of how often it is expected
    in the sample. Samples that are true classes stay in (they are not removed). Rows of `weights`
    and `biases` are gathered once, so their gradient is one scatter-add. A label that is no class
    is an error if it is known while tracing; at run time it makes the example's loss NaN.

    Args:
      weights: `[num_classes, dim]`, or a list of arrays that concatenate to it along dimension 0.
      biases: `[num_classes]`.
      labels: `[batch_size, num_true]` integers, the true classes; each is to have the probability
        1 / num_true.
      inputs: `[batch_size, dim]`.
      num_sampled: how many classes to sample, for the whole batch.
      num_classes: how many classes there are.
      num_true: how many of them each example has.
      sampled_values: the sample, as `log_uniform_candidate_sampler` returns it (the counts of true
        classes may also be `[batch_size, 1]`); None draws one of different classes with that.
      name: the operation's named scope.
      seed: where to start drawing; the same seed draws the same sample each time.
      key: a JAX key, instead of a seed. With neither, compiled code draws anew in each run, from
        the device's seed (`utils.reset_ipu_seed`).

    Returns:
      The losses, `[batch_size]` of the dtype of `inputs`.

    Raises:
      ConfigTypeError: (a `TypeError`) arrays or numbers of wrong types.
      OperatorError: (a `ValueError`) shapes that do not fit, numbers below 1, known labels or
        samples that are no classes, more samples than classes, both a sample and a seed or key,
        or none of the three outside compiled code.
    """
    what = "sampled_softmax_loss"
    with check.scope(name):
        layer = _layer(what, weights, biases, inputs, num_classes)
        true = _true(labels, num_true, layer, what)
        drawn = _sample(what, true, num_sampled, layer.classes, sampled_values, seed, key)
        logits = jnp.concatenate(_logits(layer, true, drawn), axis=1)
        log_probs = jax.nn.log_softmax(logits, axis=1)
        return -jnp.mean(log_probs[:, : true.shape[1]], axis=1).astype(layer.inputs.dtype)


@check.guard
def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str | None = "nce_loss",
    *,
    seed: Any = None,
    key: Any = None,
) -> jax.Array:
    """The noise-contrastive loss: logistic losses of true classes and of a sample, summed.

    Seed 001, 18.14.7. Logits, samples and gradients are those of `sampled_softmax_loss`.

    Args:
      weights: as there.
      biases: as there.
      labels: as there; the logistic loss of each wants the probability 1 / num_true.
      inputs: as there.
      num_sampled: as there.
      num_classes: as there.
      num_true: as there.
      sampled_values: as there.
      name: as there.
      seed: as there; an addition to the seed's arguments, by keyword only.
      key: as there.

    Returns:
      The losses, `[batch_size]` of the dtype of `inputs`.

    Raises:
      ConfigTypeError: (a `TypeError`) as there.
      OperatorError: (a `ValueError`) as there.
    """
    what = "nce_loss"
    with check.scope(name):
        layer = _layer(what, weights, biases, inputs, num_classes)
        true = _true(labels, num_true, layer, what)
        drawn = _sample(what, true, num_sampled, layer.classes, sampled_values, seed, key)
        of_true, of_sample = _logits(layer, true, drawn)
        losses = jax.nn.softplus(of_true) - of_true / true.shape[1]
        total = losses.sum(axis=1) + jax.nn.softplus(of_sample).sum(axis=1)
        return total.astype(layer.inputs.dtype)


class _Layer(NamedTuple):
    weights: jax.Array
    biases: jax.Array
    inputs: jax.Array

    @property
    def classes(self) -> int:
        return self.weights.shape[0]

    @property
    def batch(self) -> int:
        return self.inputs.shape[0]


def _layer(what: str, weights: Any, biases: Any, inputs: Any, num_classes: Any) -> _Layer:
    classes = check.integer(num_classes, f"num_classes of {what}", 1)
    parts = list(weights) if isinstance(weights, (list, tuple)) else [weights]
    if not parts:
        raise check.refuse(f"the weights of {what} are an empty list", "give at least one array")
    rows = [_floats(part, ("num_classes", "dim"), f"the weights of {what}") for part in parts]
    whole = rows[0] if len(rows) == 1 else jnp.concatenate(rows)
    check.shape(whole, (classes, "dim"), f"the weights of {what}")
    bias = _floats(biases, (classes,), f"the biases of {what}")
    activations = _floats(inputs, ("batch_size", whole.shape[1]), f"the inputs of {what}")
    return _Layer(whole, bias, activations)


def _floats(x: Any, dims: tuple[int | str, ...], what: str) -> jax.Array:
    values = check.floats(x, what)
    check.shape(values, dims, what)
    return values


def _true(labels: Any, num_true: Any, layer: _Layer, what: str) -> jax.Array:
    count = check.integer(num_true, f"num_true of {what}", 1)
    true = check.integers(labels, (layer.batch, count), f"the labels of {what}")
    check.inside(labels, layer.classes, f"the labels of {what}")
    return true


def _sample(
    what: str, true: jax.Array, num_sampled: Any, classes: int, values: Any, seed: Any, key: Any
) -> Candidates:
    count = check.integer(num_sampled, f"num_sampled of {what}", 1)
    if values is None:
        return sample(what, true, count, classes, draw_key(seed, key, what))
    if seed is not None or key is not None:
        raise check.refuse(
            f"{what} was given sampled_values, and a seed or key to draw others",
            "leave one of them out",
        )
    if not isinstance(values, (list, tuple)) or len(values) != 3:
        raise check.refuse_type(
            f"sampled_values of {what} are {_described(values)}",
            "give a tuple (sampled_candidates, true_expected_count, sampled_expected_count)",
        )
    sampled = check.integers(values[0], (count,), f"the sampled candidates of {what}")
    check.inside(values[0], classes, f"the sampled candidates of {what}")
    of_true = check.floats(values[1], f"the true expected counts of {what}")
    if of_true.shape != (true.shape[0], 1):  # one for all true classes of an example
        check.shape(of_true, true.shape, f"the true expected counts of {what}")
    of_sampled = _floats(values[2], (count,), f"the sampled expected counts of {what}")
    return sampled, lax.stop_gradient(of_true), lax.stop_gradient(of_sampled)


def _described(value: Any) -> str:
    kind = f"of type {type(value).__name__}"
    return f"{kind} and length {len(value)}" if isinstance(value, (list, tuple)) else kind


def _logits(layer: _Layer, true: jax.Array, drawn: Candidates) -> tuple[jax.Array, jax.Array]:
    """Logits of the true classes `[batch, num_true]` and of the sample `[batch, num_sampled]`.

    Products are in the dtype of the inputs, all else in float32.
    """
    sampled, true_count, sampled_count = drawn
    rows = jnp.concatenate([true.reshape(-1), sampled])
    weights = _gather(layer.weights, rows).astype(layer.inputs.dtype)
    biases = _gather(layer.biases, rows).astype(jnp.float32)
    split = true.size
    true_rows = weights[:split].reshape(*true.shape, layer.inputs.shape[1])
    of_true = jnp.einsum("bd,btd->bt", layer.inputs, true_rows).astype(jnp.float32)
    of_sampled = (layer.inputs @ weights[split:].T).astype(jnp.float32)
    return (
        of_true + biases[:split].reshape(true.shape) - jnp.log(true_count),
        of_sampled + biases[split:] - jnp.log(sampled_count),
    )


def _gather(table: jax.Array, rows: jax.Array) -> jax.Array:
    """Rows of a table; NaN for those it does not have, also where JAX would count backwards."""
    known = jnp.where(rows < 0, table.shape[0], rows)
    return table.at[known].get(mode="fill", fill_value=jnp.nan)
