"""A training step of four convolutions on one IPU."""

import jax
import jax.numpy as jnp

import ipujax as ipu


def loss_fn(kernels, images):
    x = images
    for number, kernel in enumerate(kernels):
        with jax.named_scope(f"conv{number}"):
            x = jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x)
    return (x**2).mean()


@ipu.compile
def train_step(kernels, images):
    gradients = jax.grad(loss_fn)(kernels, images)
    return jax.tree.map(lambda kernel, gradient: kernel - 0.1 * gradient, kernels, gradients)


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float16)


kernels = [array(3, 3, 16, 64), *[array(3, 3, 64, 64)] * 3]
report = train_step.lower(kernels, array(8, 32, 32, 16)).report()
