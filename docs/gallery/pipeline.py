"""A training step of four blocks on four IPUs, by 1F1B over eight micro-batches."""

import jax
import jax.numpy as jnp
import optax

import ipujax as ipu

WIDTH, STAGES = 1024, 4


def block(weights, x):
    with jax.named_scope("norm"):
        normed = jax.nn.standardize(x)
    with jax.named_scope("feed_forward"):
        return x + jax.nn.gelu(normed @ weights["up"]) @ weights["down"]


def loss_fn(params, x):
    for number, weights in enumerate(params):
        with ipu.scopes.pipeline_stage(number), jax.named_scope(f"mlp{number}"):
            x = block(weights, x)
    return (x**2).mean()


grad_fn = ipu.pipelining_ops.value_and_grad(loss_fn, micro_batches=8)
optimizer = optax.adam(1e-3)


@ipu.compile
def train_step(params, opt_state, x):
    loss, grads = grad_fn(params, x)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float16)


params = [{"up": array(WIDTH, 4 * WIDTH), "down": array(4 * WIDTH, WIDTH)}] * STAGES
opt_state = jax.eval_shape(optimizer.init, params)
report = train_step.lower(params, opt_state, array(8 * 256, WIDTH)).report()
