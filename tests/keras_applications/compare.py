"""One architecture, one update of its weights: Keras alone, and in the scope of a strategy."""

from __future__ import annotations

import dataclasses as dc
import inspect
import time
from typing import Any

import keras
import numpy as np

import ipujax as ipu

CLASSES, BATCH, MICRO_BATCHES = 10, 2, 4
# The smallest images that an architecture takes, where these are not of 32 x 32.
_SIZES = {"InceptionResNetV2": 75, "InceptionV3": 75, "Xception": 71}


@dc.dataclass(frozen=True)
class Result:
    """What came of an architecture.

    Attributes:
      name: of the architecture.
      ipus: that the model in the scope was on; more than one as a pipeline.
      parameters: numbers in its weights.
      layers: of the model.
      keras_loss: of Keras alone, the mean over the micro-batches.
      ipu_loss: in the scope.
      weights: the largest difference of a number of a weight, of the optimizer or of a seed;
        relative where numbers are larger than 1.
      same_bits: whether the loss and all of these are equal.
      keras_seconds: of processors, in Keras's `compile` and `fit`.
      ipu_seconds: in these in the scope, which come first.
    """

    name: str
    ipus: int
    parameters: int
    layers: int
    keras_loss: float
    ipu_loss: float
    weights: float
    same_bits: bool
    keras_seconds: float
    ipu_seconds: float

    @property
    def loss(self) -> float:
        """The relative difference of the losses."""
        return abs(self.ipu_loss - self.keras_loss) / abs(self.keras_loss)

    @property
    def agrees(self) -> bool:
        """Whether the loss is the same to 1e-5 and all weights are to 1e-4."""
        return self.loss <= 1e-5 and self.weights <= 1e-4


@dc.dataclass(frozen=True)
class _Trained:
    """What a `fit` left."""

    loss: float
    variables: list[np.ndarray]
    seconds: float


def architectures() -> list[str]:
    """The names of all architectures of the Keras that is installed."""
    return [name for name, _ in inspect.getmembers(keras.applications, inspect.isfunction)]


def build(name: str, ipus: int = 1) -> Any:
    """Builds an architecture with random weights in the scope of a device of so many IPUs."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    keras.utils.set_random_seed(1)
    size = _SIZES.get(name, 32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        make = getattr(keras.applications, name)
        return make(weights=None, input_shape=(size, size, 3), classes=CLASSES)


def compare(name: str, model: Any, ipus: int = 1) -> Result:
    """Trains a model both ways, from the same weights, on the same images.

    Args:
      name: of the architecture.
      model: that was built of it for so many IPUs.
      ipus: 1, or 2 for a pipeline of as many stages with accumulation, which Keras's optimizer then
        has too.
    """
    micro_batches = 1 if ipus == 1 else MICRO_BATCHES
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (micro_batches * BATCH, *model.input_shape[1:])).astype("float32")
    data = images, rng.integers(0, CLASSES, len(images))
    start = _numbers(_variables(model))
    with ipu.ipu_strategy.IPUStrategy().scope():
        ours = _fit(model, data, micro_batches, ipus)
    for variable, value in zip(_variables(model), start, strict=True):
        variable.assign(value)
    theirs = _fit(model, data, micro_batches, 1)
    return Result(
        name,
        ipus,
        model.count_params(),
        len(model.layers),
        theirs.loss,
        ours.loss,
        _difference(ours.variables, theirs.variables),
        ours.loss == theirs.loss and all(map(np.array_equal, ours.variables, theirs.variables)),
        theirs.seconds,
        ours.seconds,
    )


def _fit(model: Any, data: tuple[np.ndarray, ...], steps: int, ipus: int) -> _Trained:
    """One update of the weights, from as many batches as there are steps."""
    accumulation = None if steps == 1 or ipus > 1 else steps
    optimizer = keras.optimizers.SGD(1e-3, momentum=0.9, gradient_accumulation_steps=accumulation)
    begin = time.process_time()  # others may use the machine
    model.compile(optimizer, "sparse_categorical_crossentropy", steps_per_execution=steps)
    if ipus > 1:
        _pipeline(model, steps, ipus)
    history = model.fit(*data, batch_size=BATCH, shuffle=False, verbose=0)
    seconds = time.process_time() - begin
    return _Trained(
        history.history["loss"][0], _numbers([*_variables(model), *optimizer.momentums]), seconds
    )


def _pipeline(model: Any, steps: int, stages: int) -> None:
    """Deals the layers to as many stages, in their order."""
    assignment = model.get_pipeline_stage_assignment()
    for number, each in enumerate(assignment):
        stage = number * stages // len(assignment)
        if each.is_nested_model:  # Sequential ones
            each.pipeline_stage_assignments = [stage] * len(each.pipeline_stage_assignments)
        else:
            each.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=steps)


def _variables(model: Any) -> list[Any]:
    """Weights, statistics and seeds."""
    return [*model.trainable_variables, *model.non_trainable_variables]


def _numbers(variables: list[Any]) -> list[np.ndarray]:
    return [np.array(variable) for variable in variables]


def _difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest of a number, relative where numbers are larger than 1."""
    worst = [0.0]
    for one, other in zip(ours, theirs, strict=True):
        wide = other.astype(np.float64)
        worst.append(np.max(np.abs(one - wide) / np.maximum(1, np.abs(wide)), initial=0.0))
    return float(np.max(worst))  # NaN if there is one
