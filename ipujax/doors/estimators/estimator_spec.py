"""The spec that a `model_fn` returns: the parts of a model that a mode needs."""

from __future__ import annotations

import copy
import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.estimators.estimator_checks import check, check_metric_names
from ipujax.doors.estimators.session_hooks import SessionRunHook
from ipujax.operators import Metric
from ipujax.pipelines import is_optimizer
from ipujax.training import Tree


@check.guard
class ModeKeys:
    """The modes that a model function is called for, as in the original."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
RESERVED_METRICS = ("loss", "global_step")
"""The names of the values that every evaluation gives."""
HostCall = tuple[Callable[..., Any], Any]
"""A function, and the arrays that it is called with on the host."""


@check.guard
@dc.dataclass(frozen=True)
class IPUEstimatorSpec:
    """The spec that a `model_fn` returns.

    Attributes:
      mode: a `ModeKeys`.
      predictions: an array or a dict of arrays; needed to predict.
      loss: a scalar; needed to train and to evaluate.
      train_op: an optax transformation, or one of `ipujax.optimizers`, which the estimator
        minimizes the loss with; needed to train.
      eval_metric_ops: names to `ipujax.metrics`, computed on the device.
      eval_metrics: `(function, arrays)`: called on the host with the arrays of each step and
        replica, a list of them or a dict by keyword; gives a dict of `ipujax.metrics`.
        Evaluation needs one of the two.
      host_call: `(function, list of arrays)`: called on the host after each step of training.
      training_hooks: objects of `SessionRunHook`, called around the device loops of training.
      evaluation_hooks: the same for evaluation.
      prediction_hooks: the same for prediction.
      state: the new untrained state, as `init_fn` gave it; None if the step changes nothing of it.

    Raises:
      EstimatorError: (a `ValueError`) a part that the mode needs is missing, or has a wrong value.
      EstimatorTypeError: (a `TypeError`) an argument of a wrong type.
    """

    mode: str
    predictions: Tree = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: dict[str, Metric] | None = None
    eval_metrics: HostCall | None = None
    host_call: HostCall | None = None
    training_hooks: Sequence[SessionRunHook] | None = None
    evaluation_hooks: Sequence[SessionRunHook] | None = None
    prediction_hooks: Sequence[SessionRunHook] | None = None
    _: dc.KW_ONLY
    state: Tree = None

    def __post_init__(self) -> None:
        check.require_one_of(self.mode, MODES, "the mode of an IPUEstimatorSpec")
        if self.loss is not None:
            object.__setattr__(self, "loss", _check_spec_loss(self.loss, self.mode))
        if self.train_op is not None and not is_optimizer(self.train_op):
            expected = "an optax gradient transformation, such as optax.sgd(0.1)"
            raise check.wrong_type_error(expected, self.train_op, "train_op")
        _check_host_call(self.host_call, "host_call", (list,))
        _check_host_call(self.eval_metrics, "eval_metrics", (list, dict))
        _check_eval_metric_ops(self.eval_metric_ops)
        for name in ("training_hooks", "evaluation_hooks", "prediction_hooks"):
            object.__setattr__(self, name, check_hooks(getattr(self, name), name))
        self._check_complete()

    def _check_complete(self) -> None:
        needed = {
            ModeKeys.TRAIN: ("loss", "train_op"),
            ModeKeys.EVAL: ("loss",),
            ModeKeys.PREDICT: ("predictions",),
        }
        for name in needed[self.mode]:
            if getattr(self, name) is None:
                raise check.value_error(
                    f"the IPUEstimatorSpec of mode {self.mode!r} has no {name}",
                    f"give it: IPUEstimatorSpec(mode, {name}=...)",
                )
        ways = (self.eval_metric_ops is not None) + (self.eval_metrics is not None)
        if ways == 2 or (not ways and self.mode == ModeKeys.EVAL):
            number = "both" if ways else "neither"
            raise check.value_error(
                f"the IPUEstimatorSpec has {number} of eval_metric_ops and eval_metrics",
                "give one: eval_metric_ops for metrics on the device, eval_metrics for metrics "
                "on the host",
            )

    def without_arrays(self) -> IPUEstimatorSpec:
        """Returns a copy without arrays: functions, hooks and optimizer outlive a trace."""
        spec = copy.copy(self)
        metrics = self.eval_metric_ops
        changes: dict[str, Any] = dict.fromkeys(("predictions", "loss", "state"))
        for name in ("host_call", "eval_metrics"):
            call = getattr(self, name)
            changes[name] = None if call is None else (call[0], [])
        if metrics is not None:
            changes["eval_metric_ops"] = {
                name: dc.replace(metric, totals=None) for name, metric in metrics.items()
            }
        for name, value in changes.items():
            object.__setattr__(spec, name, value)
        return spec

    @property
    def hooks(self) -> Sequence[SessionRunHook]:
        """The hooks of the spec's mode."""
        hooks_of_mode = {
            ModeKeys.TRAIN: self.training_hooks,
            ModeKeys.EVAL: self.evaluation_hooks,
            ModeKeys.PREDICT: self.prediction_hooks,
        }
        return hooks_of_mode[self.mode] or ()


def check_hooks(hooks: object, argument_name: str) -> Sequence[SessionRunHook]:
    """Returns the session run hooks that the user gave, a tuple; None stands for none."""
    entries = (
        [] if hooks is None else check.require_sequence(hooks, argument_name, "SessionRunHooks")
    )
    for hook in entries:
        check.require_instance(hook, SessionRunHook, f"an entry of {argument_name}")
    return tuple(entries)


def _check_spec_loss(loss: object, mode: str) -> jax.Array:
    array = check.require_array(loss, "the loss")
    if array.size != 1:
        raise check.value_error(
            f"the loss has the shape {array.shape}, but must be a scalar",
            "reduce it over the batch: loss=jnp.mean(loss)",
        )
    if mode == ModeKeys.TRAIN and not jnp.issubdtype(array.dtype, jnp.floating):
        raise check.type_error(
            f"the loss is {array.dtype}, which has no gradient", "give a floating-point scalar"
        )
    return array.reshape(())


def _check_host_call(call: object, name: str, kinds: tuple[type, ...]) -> None:
    """Checks a host call in the original's order (fact estimator.host_call_format)."""
    if call is None:
        return
    if not isinstance(call, tuple):
        raise check.wrong_type_error("a tuple of a function and its arrays", call, name)
    if len(call) != 2:
        raise check.value_error(
            f"{name} has {len(call)} elements", "give a function and its arrays"
        )
    check.require_function(call[0], f"the first element of {name}")
    expected = " or ".join(f"a {kind.__name__}" for kind in kinds)
    check.require_instance(call[1], kinds, f"the second element of {name}", expected)


def _check_eval_metric_ops(metrics: Any) -> None:
    if metrics is None:
        return
    check.require_instance(metrics, dict, "eval_metric_ops")
    check_metric_names(filter(lambda name: isinstance(name, str), metrics), RESERVED_METRICS)
    for name, metric in metrics.items():
        check.require_text(name, "a name in eval_metric_ops")
        check.require_instance(metric, Metric, f"the metric `{name}`", "one of ipujax.metrics")
