"""`python -m ipujax.demo`: a classifier, split over two virtual IPUs, learns real digits.

The batches come through an infeed, the losses go out through an outfeed and are shown while the
device loop is still running.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from ipujax.demo.digits import load_digits
from ipujax.demo.who_runs_what import who_runs_what
from ipujax.training import Progress, ReplicaReduction, Training

BATCH, STEPS, HIDDEN = 32, 1500, 128
REPORT = Path("build", "demo", "report.html")


def initial_parameters() -> dict[str, jax.Array]:
    """Returns the parameters of two dense layers: the first for IPU 0, the second for IPU 1."""
    first, second = jax.random.split(jax.random.key(0))
    return {
        "w0": jax.random.normal(first, (64, HIDDEN)) / 8,
        "b0": jnp.zeros(HIDDEN),
        "w1": jax.random.normal(second, (HIDDEN, 10)) / np.sqrt(HIDDEN),
        "b1": jnp.zeros(10),
    }


def compute_logits(parameters: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    """Computes the classifier's logits; gradients run on the same IPUs."""
    with ipu.scopes.ipu_shard(0):
        flat = images.reshape(images.shape[0], -1)
        hidden = jax.nn.relu(flat @ parameters["w0"] + parameters["b0"])
    with ipu.scopes.ipu_shard(1):
        return hidden @ parameters["w1"] + parameters["b1"]


def digits_loss(
    parameters: dict[str, jax.Array], images: jax.Array, labels: jax.Array
) -> jax.Array:
    """Computes the mean cross-entropy of a batch."""
    logits = compute_logits(parameters, images)
    with ipu.scopes.ipu_shard(1):
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def generate_batches(
    images: np.ndarray, labels: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields shuffled batches without end."""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            yield images[rows], labels[rows]


def main() -> float:
    """Trains the classifier, prints what runs where, and returns the test accuracy."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()

    train_images, train_labels, test_images, test_labels = load_digits()
    data = generate_batches(train_images, train_labels)
    alone = ReplicaReduction.NONE  # two IPUs hold one replica: there is nothing to average
    training = Training(digits_loss, optax.adam(1e-3), replica_reduction=alone, name="train")

    @ipu.compile
    def predict_classes(parameters: dict[str, jax.Array], images: jax.Array) -> jax.Array:
        return jnp.argmax(compute_logits(parameters, images), axis=1)

    print(f"{len(train_labels)} handwritten digits of 8 x 8 pixels, {STEPS} steps of {BATCH};")
    print(f"a layer of {HIDDEN} neurons is on IPU 0, one of 10 and the loss are on IPU 1")
    state = training.init(initial_parameters())
    executable = training.compile(state, data, STEPS)
    print(who_runs_what(executable.lowered.program))
    parameters = training.fit(state, data, STEPS, [Progress()]).variables

    correct = np.asarray(predict_classes(parameters, jnp.asarray(test_images))) == test_labels
    accuracy = float(correct.mean())
    print(f"test accuracy: {accuracy:.1%} of {len(correct)} digits that were not trained on")

    REPORT.parent.mkdir(parents=True, exist_ok=True)
    executable.report().to_html(REPORT)
    print("what this would take on two real IPUs, as a page for your browser:")
    print(f"  {REPORT}")
    return accuracy


if __name__ == "__main__":
    main()
