"""A training step that one IPU has not enough memory for: the report has advice."""

import jax
import jax.numpy as jnp
import optax

import ipujax as ipu

WIDTH, BLOCKS = 2048, 4
optimizer = optax.sgd(0.1, momentum=0.9)


def loss_fn(params, x):
    for number, weights in enumerate(params):
        with jax.named_scope(f"mlp{number}"):
            x = x + jax.nn.gelu(jax.nn.standardize(x) @ weights["up"]) @ weights["down"]
    return (x**2).mean()


@ipu.compile
def train_step(params, opt_state, x):
    gradients = jax.grad(loss_fn)(params, x)
    updates, opt_state = optimizer.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float16)


params = [{"up": array(WIDTH, 4 * WIDTH), "down": array(4 * WIDTH, WIDTH)}] * BLOCKS
opt_state = jax.eval_shape(optimizer.init, params)
report = train_step.lower(params, opt_state, array(512, WIDTH)).report()
