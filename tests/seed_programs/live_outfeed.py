"""Training a model, 6.3: a thread prints each loss while the loop on the device goes on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import jax
import numpy as np
import optax

import ipujax as ipu
from ipujax.demo.digits import load_digits

NUM_ITERATIONS = 100
BATCH_SIZE = 32

Batch = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass
class Progress:
    """What was printed, and when."""

    losses: list[float] = dataclasses.field(default_factory=list)
    printed: list[float] = dataclasses.field(default_factory=list)
    ended: float = 0.0


def create_dataset() -> Iterator[Batch]:
    images, labels, _, _ = load_digits()
    rng = np.random.default_rng(0)
    while True:
        chosen = rng.permutation(len(labels))[:BATCH_SIZE]
        time.sleep(0.002)  # as if it came from a disk
        yield images[chosen].reshape(BATCH_SIZE, -1), labels[chosen]


def create_model(key: jax.Array) -> Any:
    first, second = jax.random.split(key)
    return {
        "hidden": jax.random.normal(first, (64, 128)) / 8,
        "digits": jax.random.normal(second, (128, 10)) / 11,
    }


def loss_of(model: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
    logits = jax.nn.relu(images @ model["hidden"]) @ model["digits"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main(
    dataset: Callable[[], Iterator[Batch]] = create_dataset, progress: Progress | None = None
) -> Progress:
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()

    infeed_queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed_queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    optimizer = optax.sgd(0.1)

    def training_step(model: Any, state: Any, features: jax.Array, labels: jax.Array) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(model, features, labels)
        updates, state = optimizer.update(gradients, state)
        outfeed_queue.enqueue(loss)
        return optax.apply_updates(model, updates), state

    @ipu.compile
    def train(model: Any, state: Any) -> Any:
        return ipu.loops.repeat(NUM_ITERATIONS, training_step, [model, state], infeed_queue)

    progress = progress or Progress()

    # Dequeues continuously, until NUM_ITERATIONS losses have been seen.
    def dequeue_thread_fn() -> None:
        while len(progress.losses) < NUM_ITERATIONS:
            for loss in outfeed_queue:
                print("Step", len(progress.losses), "loss = ", loss)
                progress.losses.append(float(loss))
                progress.printed.append(time.monotonic())
            time.sleep(0.001)

    dequeue_thread = Thread(target=dequeue_thread_fn, daemon=True)
    dequeue_thread.start()

    model = create_model(jax.random.key(0))
    model, _ = jax.block_until_ready(train(model, optimizer.init(model)))
    progress.ended = time.monotonic()
    dequeue_thread.join()
    printed_before = sum(moment < progress.ended for moment in progress.printed)
    print(f"{printed_before} of {NUM_ITERATIONS} losses were printed before the loop had ended")
    return progress


if __name__ == "__main__":
    main()
