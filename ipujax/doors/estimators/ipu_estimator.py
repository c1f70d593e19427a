"""`IPUEstimator`: trains, evaluates and predicts with a model function in device loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipujax.doors.estimators.estimator import Estimator
from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.estimator_mode import EstimatorMode, EstimatorSettings
from ipujax.doors.estimators.estimator_spec import IPUEstimatorSpec, ModeKeys
from ipujax.doors.estimators.function_mode import FunctionMode
from ipujax.doors.estimators.model_fn import FunctionByName

_OFFERED = "features", "labels", "mode", "params", "state", "key", "global_step", "config"


@check.guard
class IPUEstimator(Estimator):
    """A model function, trained, evaluated and used by device loops.

    TRAIN, EVAL and PREDICT share the variables that `init_fn` makes; each mode is traced and
    compiled once. The state is in checkpoints of `model_dir`: the three methods begin with the
    newest, `train` writes them.

    * `train(input_fn, hooks=None, steps=None, max_steps=None, saving_listeners=None)` calls
      `input_fn` anew and begins with its first element. Only where the newest checkpoint was
      written inside a training whose process died does it go on with the element after those that
      the checkpoint has seen. It makes `steps` more steps, or trains until there are `max_steps`
      (rounded up to whole device loops), or until the data ends. `saving_listeners` are told of
      each checkpoint, as `ipu_session_run_hooks.CheckpointSaverListener` says. The mean
      loss of a device loop is logged by absl with INFO severity, and written for TensorBoard where
      the extra `tensorboard` is installed.
    * `evaluate(input_fn, steps=None, hooks=None, checkpoint_path=None, name=None)` gives the
      metrics, `loss` and `global_step`, NumPy scalars.
    * `predict(input_fn, predict_keys=None, hooks=None, checkpoint_path=None,
      yield_single_examples=True, num_predictions=None)` yields NumPy arrays or dicts of them until
      the data ends.

    `input_fn` takes any of `mode`, `params`, `config` and `input_context` (None without a
    strategy), and returns what an infeed takes, of elements `(features, labels)` or features.

    With `train_distribute` in `config` several workers, each a process with data of its own, train
    the same variables: the gradients of all are added up for each update, so divide the loss by
    what all of them see. All begin with what the chief has, which alone reads and writes
    checkpoints and curves. Floating-point leaves of `state` are each worker's own, and averaged
    when they are saved and when a training ends. All workers call `train`, `evaluate` and
    `predict` together, and train with as many elements each. Where a hook of one asks for the end,
    all end.

    Args:
      model_fn: `model_fn(variables, ...)` takes, besides, any of `features`, `labels`, `mode`,
        `params`, `state`, `key` (of this step and replica), `global_step` (before the device
        loop) and `config` by name, and returns an `IPUEstimatorSpec`.
      model_dir: a folder; that of `config`, or a temporary one, by default.
      config: an `ipu_run_config.RunConfig`, whose `ipu_options` the estimator configures.
      params: a dict for the user's functions.
      warm_start_from: the path of a checkpoint whose variables to begin with, as long as there is
        none in `model_dir`.
      train_batch_size: over all replicas and workers; the part of one is `params["batch_size"]`,
        for which `input_fn` must take `params`.
      eval_batch_size: the same, to evaluate.
      predict_batch_size: the same, to predict.
      init_fn: `init_fn(key, features)` gives the variables, a pytree, or `(variables, state)`; for
        the features of the first element and a key of `tf_random_seed` (0 for None). None for a
        model without variables.

    Raises:
      EstimatorError: (a `ValueError`) arguments that cannot be.
      EstimatorTypeError: (a `TypeError`) arguments of a wrong type.
    """

    def __init__(
        self,
        model_fn: Callable[..., IPUEstimatorSpec],
        model_dir: Any = None,
        config: Any = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        *,
        init_fn: Callable[..., Any] | None = None,
    ):
        for name, size in {
            "train_batch_size": train_batch_size,
            "eval_batch_size": eval_batch_size,
            "predict_batch_size": predict_batch_size,
        }.items():
            if size is not None:
                check.require_integer(size, name, at_least=1)
        sizes = {
            ModeKeys.TRAIN: train_batch_size,
            ModeKeys.EVAL: eval_batch_size,
            ModeKeys.PREDICT: predict_batch_size,
        }
        super().__init__(model_fn, model_dir, config, params, warm_start_from, init_fn, sizes)
        self._function = FunctionByName(model_fn, "model_fn", _OFFERED, ("variables",))

    def _new_mode(self, settings: EstimatorSettings, mode: str) -> EstimatorMode:
        return FunctionMode(mode, self._function, settings)
