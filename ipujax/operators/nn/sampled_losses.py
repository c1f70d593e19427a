"""Losses over a sample of the classes instead of all classes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ipujax.ground import PyTree, check
from ipujax.operators.nn.candidates import Candidates, sample_candidates
from ipujax.operators.random_keys import choose_random_key


@check.guard
def sampled_softmax_loss(
    weights: ArrayLike,
    biases: ArrayLike,
    labels: ArrayLike,
    inputs: PyTree,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: PyTree = None,
    name: str | None = "sampled_softmax_loss",
    seed: ArrayLike | None = None,
    *,
    key: ArrayLike | None = None,
) -> jax.Array:
    """Computes the softmax cross entropy of true classes among those and sampled classes.

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
    operator = "sampled_softmax_loss"
    with check.operator_scope(name):
        layer = _check_layer(operator, weights, biases, inputs, num_classes)
        true = _check_true_classes(labels, num_true, layer, operator)
        drawn = _check_or_draw_sample(
            operator, true, num_sampled, layer.classes, sampled_values, seed, key
        )
        logits = jnp.concatenate(_compute_logits(layer, true, drawn), axis=1)
        log_probs = jax.nn.log_softmax(logits, axis=1)
        return -jnp.mean(log_probs[:, : true.shape[1]], axis=1).astype(layer.inputs.dtype)


@check.guard
def nce_loss(
    weights: ArrayLike,
    biases: ArrayLike,
    labels: ArrayLike,
    inputs: PyTree,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: PyTree = None,
    name: str | None = "nce_loss",
    *,
    seed: ArrayLike | None = None,
    key: ArrayLike | None = None,
) -> jax.Array:
    """Computes the noise-contrastive loss: the logistic losses of true and sampled classes.

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
    operator = "nce_loss"
    with check.operator_scope(name):
        layer = _check_layer(operator, weights, biases, inputs, num_classes)
        true = _check_true_classes(labels, num_true, layer, operator)
        drawn = _check_or_draw_sample(
            operator, true, num_sampled, layer.classes, sampled_values, seed, key
        )
        of_true, of_sample = _compute_logits(layer, true, drawn)
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


def _check_layer(
    operator: str, weights: ArrayLike, biases: ArrayLike, inputs: PyTree, num_classes: object
) -> _Layer:
    classes = check.require_integer(num_classes, f"num_classes of {operator}", 1)
    parts = list(weights) if isinstance(weights, (list, tuple)) else [weights]
    if not parts:
        raise check.value_error(
            f"the weights of {operator} are an empty list", "give at least one array"
        )
    rows = [
        _require_floats_of_shape(part, ("num_classes", "dim"), f"the weights of {operator}")
        for part in parts
    ]
    all_weights = rows[0] if len(rows) == 1 else jnp.concatenate(rows)
    check.require_shape(all_weights, (classes, "dim"), f"the weights of {operator}")
    bias = _require_floats_of_shape(biases, (classes,), f"the biases of {operator}")
    activations = _require_floats_of_shape(
        inputs, ("batch_size", all_weights.shape[1]), f"the inputs of {operator}"
    )
    return _Layer(all_weights, bias, activations)


def _require_floats_of_shape(x: ArrayLike, dims: tuple[int | str, ...], argument: str) -> jax.Array:
    values = check.require_floats(x, argument)
    check.require_shape(values, dims, argument)
    return values


def _check_true_classes(
    labels: ArrayLike, num_true: object, layer: _Layer, operator: str
) -> jax.Array:
    count = check.require_integer(num_true, f"num_true of {operator}", 1)
    true = check.require_integers(labels, (layer.batch, count), f"the labels of {operator}")
    check.require_in_range(labels, layer.classes, f"the labels of {operator}")
    return true


def _check_or_draw_sample(
    operator: str,
    true: jax.Array,
    num_sampled: object,
    classes: int,
    values: PyTree,
    seed: ArrayLike | None,
    key: ArrayLike | None,
) -> Candidates:
    count = check.require_integer(num_sampled, f"num_sampled of {operator}", 1)
    if values is None:
        return sample_candidates(
            operator, true, count, classes, choose_random_key(seed, key, operator)
        )
    if seed is not None or key is not None:
        raise check.value_error(
            f"{operator} was given sampled_values, and a seed or key to draw others",
            "leave one of them out",
        )
    if not isinstance(values, (list, tuple)) or len(values) != 3:
        raise check.type_error(
            f"sampled_values of {operator} are {_describe_sampled_values(values)}",
            "give a tuple (sampled_candidates, true_expected_count, sampled_expected_count)",
        )
    sampled = check.require_integers(values[0], (count,), f"the sampled candidates of {operator}")
    check.require_in_range(values[0], classes, f"the sampled candidates of {operator}")
    of_true = check.require_floats(values[1], f"the true expected counts of {operator}")
    if of_true.shape != (true.shape[0], 1):  # one for all true classes of an example
        check.require_shape(of_true, true.shape, f"the true expected counts of {operator}")
    of_sampled = _require_floats_of_shape(
        values[2], (count,), f"the sampled expected counts of {operator}"
    )
    return sampled, lax.stop_gradient(of_true), lax.stop_gradient(of_sampled)


def _describe_sampled_values(value: object) -> str:
    kind = f"of type {type(value).__name__}"
    return f"{kind} and length {len(value)}" if isinstance(value, (list, tuple)) else kind


def _compute_logits(
    layer: _Layer, true: jax.Array, drawn: Candidates
) -> tuple[jax.Array, jax.Array]:
    """Computes logits of true classes `[batch, num_true]` and the sample `[batch, num_sampled]`.

    Products are in the dtype of the inputs, all else in float32.
    """
    sampled, true_count, sampled_count = drawn
    rows = jnp.concatenate([true.reshape(-1), sampled])
    weights = _gather_or_nan(layer.weights, rows).astype(layer.inputs.dtype)
    biases = _gather_or_nan(layer.biases, rows).astype(jnp.float32)
    split = true.size
    true_rows = weights[:split].reshape(*true.shape, layer.inputs.shape[1])
    of_true = jnp.einsum("bd,btd->bt", layer.inputs, true_rows).astype(jnp.float32)
    of_sampled = (layer.inputs @ weights[split:].T).astype(jnp.float32)
    return (
        of_true + biases[:split].reshape(true.shape) - jnp.log(true_count),
        of_sampled + biases[split:] - jnp.log(sampled_count),
    )


def _gather_or_nan(table: jax.Array, rows: jax.Array) -> jax.Array:
    """Gathers rows of a table; NaN for rows outside of it, negative ones included."""
    row_or_end = jnp.where(rows < 0, table.shape[0], rows)
    return table.at[row_or_end].get(mode="fill", fill_value=jnp.nan)
