"""Batches of arrays that are gathered at once are those that Keras picks one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("keras")

import jax
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from ipujax.keras import array_batches as arrays


def data(examples=23):
    x = np.arange(examples * 6, dtype=np.float64).reshape(examples, 3, 2)
    return {"a": x, "b": [x.astype(np.float32) + 1]}, np.arange(examples)


def drawn(make, shuffle):
    """All batches of an epoch, and a number that is drawn after them."""
    x, y = data()
    adapter = ArrayDataAdapter(x, y, batch_size=4, shuffle=shuffle)
    np.random.seed(7)
    return list(make(adapter)), np.random.rand()


@pytest.mark.parametrize("shuffle", [False, True, "batch"])
@pytest.mark.parametrize("most", [1, 2, 4, 100])
def test_batches_are_those_of_keras(shuffle, most):
    ours = drawn(lambda adapter: arrays.iterate_batches(adapter, most), shuffle)
    theirs = drawn(lambda adapter: adapter.get_jax_iterator(), shuffle)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_no_more_than_asked_for_are_gathered_and_no_more_than_fit(monkeypatch):
    x, y = data(24)
    sizes = []

    def sizes_with(most):
        adapter = ArrayDataAdapter(x, y, batch_size=4, shuffle=True)
        gathered = arrays.iterate_batches(adapter, most)
        (_, batch), *_ = list(itertools.islice(gathered, 1))
        sizes.append(len(batch.base))

    sizes_with(3)
    monkeypatch.setattr(arrays, "BYTES", 2 * 4 * (6 * 4 * 2 + 8))
    sizes_with(3)
    assert sizes == [12, 8]


def test_arrays_of_others_are_left_to_keras():
    x = jax.numpy.arange(6.0)
    adapter = ArrayDataAdapter(x, batch_size=2)
    batches = list(arrays.iterate_batches(adapter, 2))
    np.testing.assert_array_equal(np.concatenate(batches), x)
