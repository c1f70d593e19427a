"""A Keras model that instances train together, each with its batches; what only one of them writes.

Its argument is a folder for files.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import numpy as np
from shared import configured

import ipujax as ipu

BATCHES, SIZE, WIDTH = 16, 2, 4
index, count = ipu.popdist.getInstanceIndex(), ipu.popdist.getNumInstances()
total, local = ipu.popdist.getNumTotalReplicas(), ipu.popdist.getNumLocalReplicas()
random = np.random.default_rng(0)
X = random.normal(size=(BATCHES, SIZE, WIDTH)).astype("float32")
Y = (X.sum(2) > 0).astype("int32")
MINE = [n for n in range(BATCHES) if (n % total) // local == index]
x, y = (np.concatenate(array[MINE]) for array in (X, Y))


def main(folder: Path) -> dict[str, Any]:
    import keras

    def model_of(seed: int) -> Any:
        keras.utils.set_random_seed(seed)
        layers = [
            keras.Input((WIDTH,)),
            keras.layers.Dense(8, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(2),
        ]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        options = {"steps_per_execution": local * 2, "metrics": ["accuracy"]}
        model.compile(keras.optimizers.Adam(0.05), loss, **options)
        return model

    model = model_of(index)
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / f"{index}.keras"),
        keras.callbacks.BackupAndRestore(folder / f"{index}", delete_checkpoint=False),
        keras.callbacks.CSVLogger(folder / f"{index}.csv"),
    ]
    fed = {"batch_size": SIZE, "shuffle": False, "verbose": 0}
    history = model.fit(x, y, epochs=2, validation_data=(x, y), callbacks=callbacks, **fed).history
    weights = [weight.tolist() for weight in model.get_weights()]
    again = model_of(7 + index)  # goes on from what instance 0 has written
    more = again.fit(x, y, epochs=3, callbacks=callbacks[1:2], **fed).history
    return {
        "history": history,
        "weights": weights,
        "epochs": len(more["loss"]),
        "predicted": model.predict(x[: local * (1 + index)], batch_size=1, verbose=0).shape,
        "again": [weight.tolist() for weight in again.get_weights()],
        "refused": refused(model, fed),
    }


def refused(model: Any, fed: Any) -> list[str]:
    """What instances are told that have fewer batches than others, known before or not."""
    own, said = len(x) // (1 + index), list[str]()
    batches = ((x[n : n + SIZE], y[n : n + SIZE]) for n in range(0, own, SIZE))
    for data in ({"x": x[:own], "y": y[:own], **fed}, {"x": batches, "verbose": 0}):
        try:
            model.fit(**data)
        except ipu.errors.DistributionError as error:
            said.append(str(error))
    return said


if __name__ == "__main__":
    configured(ipus=1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        told = main(Path(sys.argv[1]))
    print(json.dumps({"index": index, **told}), flush=True)
