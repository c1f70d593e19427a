"""The handwritten digits that the demo learns; DIGITS_LICENSE.md says where they come from."""

from __future__ import annotations

from importlib import resources

import numpy as np
from numpy.typing import NDArray

TRAIN_SIZE = 1437  # of 1797: four fifths
LARGEST_PIXEL = 16

Images = NDArray[np.float32]
Labels = NDArray[np.int32]


def load_digits() -> tuple[Images, Labels, Images, Labels]:
    """Loads the digits as (train images, train labels, test images, test labels).

    Images are float32 `[1437, 8, 8]` and `[360, 8, 8]` with values from 0 to 1, labels int32 from
    0 to 9. The file keeps each writer's digits together and its last writers are harder than the
    others, so the split is of a shuffle, the same one every time: both parts have every writer.
    """
    with resources.files("ipujax.demo").joinpath("digits.npz").open("rb") as file:
        archive = np.load(file)
        images = archive["images"].astype(np.float32) / LARGEST_PIXEL
        labels = archive["labels"].astype(np.int32)
    # RandomState's stream is frozen; default_rng's may change with NumPy's version.
    order = np.random.RandomState(0).permutation(len(labels))
    train, test = order[:TRAIN_SIZE], order[TRAIN_SIZE:]
    return images[train], labels[train], images[test], labels[test]
