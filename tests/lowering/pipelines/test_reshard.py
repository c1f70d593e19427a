"""Layers that are shared out to IPUs: where the cuts are, and what goes with them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import Options, ir, lower
from lowering.passes import variants

W = np.ones((8, 8), np.float32)


def forward(weights, x):
    for w in weights:
        x = jax.nn.relu(x @ w)
    return x


def trained(weights, x):
    gradients = jax.grad(lambda ws: jnp.mean(forward(ws, x) ** 2))(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]


def with_momentum(weights, x):
    weights, moments = weights[:6], weights[6:]
    gradients = jax.grad(lambda ws: jnp.mean(forward(ws, x) ** 2))(weights)
    moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(weights, moments, strict=True)], moments


def traced(function, layers):
    return jax.make_jaxpr(function)([W] * layers, np.ones((4, 8), np.float32))


def share(function, layers, ipus):
    shared = variants.distribute_layers(traced(function, layers), ipus)
    assert shared is not None
    return shared


def products_of(program):
    """How many products each IPU has."""
    counts = [0] * program.ipus
    for node in ir.walk_nodes(program.body):
        if isinstance(node, ir.Execute):
            names = [eqn.primitive.name for eqn in node.kernel.jaxpr.jaxpr.eqns]
            counts[node.ipu] += names.count("dot_general")
    return counts


@pytest.mark.parametrize("ipus", [2, 4])
def test_forward_and_backward_products_of_a_layer_are_on_one_ipu(ipus):
    shared = share(trained, 8, ipus)
    assert sum(shared.products) == 8
    program = lower(shared.closed, Options(num_ipus=ipus, replicas=1))
    ends = [3 * count for count in shared.products]
    ends[0] -= 1  # the first layer's input has no gradient
    assert products_of(program) == ends


def test_what_only_an_optimizer_reads_is_no_layer():
    assert share(with_momentum, 12, 2).products == (3, 3)


def test_inference_is_cut_before_a_product():
    shared = share(forward, 6, 2)
    assert shared.products == (3, 3)
    program = lower(shared.closed, Options(num_ipus=2, replicas=1))
    copies = [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Copy)]
    between = [copy for copy in copies if min(copy.source, copy.target) >= 0]
    assert [len(copy.values) for copy in between] == [1]


def test_layers_of_a_loop_are_shared_out_inside_of_it():
    def looped(weights, x):
        return lax.fori_loop(0, 3, lambda _, ws: trained(ws, x), weights)

    shared = share(looped, 4, 2)
    assert sum(shared.products) == 4
    program = lower(shared.closed, Options(num_ipus=2, replicas=1))
    assert min(products_of(program)) > 0


def test_too_few_layers_are_not_cut():
    for function in (forward, lambda ws, x: x + 1):
        assert variants.distribute_layers(traced(function, 1), 2) is None
