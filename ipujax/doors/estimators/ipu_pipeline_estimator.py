"""`IPUPipelineEstimator`: an estimator whose model is split into pipeline stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipujax.doors.estimators.estimator import Estimator
from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.estimator_mode import EstimatorMode, EstimatorSettings
from ipujax.doors.estimators.model_fn import FunctionByName
from ipujax.doors.estimators.pipeline_mode import PipelineMode
from ipujax.doors.estimators.pipeline_spec import (
    IPUPipelineEstimatorSpec as IPUPipelineEstimatorSpec,
)

_OFFERED = "mode", "params", "config", "global_step"


@check.guard
class IPUPipelineEstimator(Estimator):
    """A model cut into stages, trained and used by pipelines on the device.

    As `ipu_estimator.IPUEstimator`, but `model_fn(mode, params)` takes no variables: it returns an
    `IPUPipelineEstimatorSpec`, whose stages take them. A step is a micro-batch: training of so many
    steps makes that number of weight updates divided by `gradient_accumulation_count`.

    Args:
      model_fn: takes any of `mode`, `params`, `config` and `global_step`, by name.
      model_dir: as in `IPUEstimator`.
      config: as in `IPUEstimator`.
      params: as in `IPUEstimator`.
      warm_start_from: as in `IPUEstimator`.
      init_fn: `init_fn(key, features)` gives the variables, or `(variables, state)`; stages then
        take both, and may return a `StageOutput`.

    Raises:
      EstimatorError: (a `ValueError`) arguments that cannot be.
      EstimatorTypeError: (a `TypeError`) arguments of a wrong type.
    """

    def __init__(
        self,
        model_fn: Callable[..., IPUPipelineEstimatorSpec],
        model_dir: Any = None,
        config: Any = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
        *,
        init_fn: Callable[..., Any] | None = None,
    ):
        super().__init__(model_fn, model_dir, config, params, warm_start_from, init_fn)
        if getattr(self.config.train_distribute, "variables_on_host", False):
            raise check.value_error(
                "train_distribute has variables_on_host, which pipelines do not support",
                "leave it out: variables of pipelines can be offloaded instead",
            )
        self._function = FunctionByName(model_fn, "model_fn", (*_OFFERED, "features", "labels"))
        for name in ("features", "labels"):
            if self._function.takes(name):
                raise check.value_error(
                    f"the model_fn of a pipeline estimator must not have `{name}`: it is given to "
                    "the first stage",
                    "take it there",
                )

    def _new_mode(self, settings: EstimatorSettings, mode: str) -> EstimatorMode:
        return PipelineMode(mode, self._function, settings)
