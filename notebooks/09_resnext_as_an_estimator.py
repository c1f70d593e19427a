# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # ResNeXt as an estimator
#
# ResNeXt is the example of Graphcore's porting guide: a residual network whose 3 x 3 convolutions
# work on groups of channels, a shape that suits a chip of many small memories. Here it is an
# estimator: scaled down it learns digits, at full size its training step is modelled on an IPU.
#
# * **You learn** to keep batch norm's statistics as an estimator's state, and to ask what a model
#   would cost at full size before anybody trains it.
# * **It takes** ten minutes to read, and half a minute to run.
# * **It needs** the notebook before this one, an idea of residual networks, and the extra
#   `notebooks`.

# %%
import dataclasses
import functools
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import ipujax as ipu
from ipujax.demo.digits import load_digits
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec, ModeKeys

# %% [markdown]
# ## The network
#
# Variables are one dict; batch norm's moving statistics are the untrained `state`. `blocks` says
# how many residual blocks each resolution has; 32 groups of 4 channels and (3, 4, 6, 3) blocks make
# ResNeXt-50 (32x4d).


# %%
def convolution(kernel, x, stride=1, groups=1):
    return lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def batch_norm(parameters, statistics, x, training):
    mean, variance = statistics["mean"], statistics["variance"]
    if training:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        statistics = {
            "mean": 0.9 * statistics["mean"] + 0.1 * mean,
            "variance": 0.9 * statistics["variance"] + 0.1 * variance,
        }
    scale = parameters["scale"] * lax.rsqrt(variance + 1e-5)
    return (x - mean) * scale + parameters["offset"], statistics


# %% [markdown]
# The kernels of all layers follow from a few numbers: height, width, channels in, channels out. A
# block whose input has other channels than its output has a kernel to skip it, too.


# %%
@dataclasses.dataclass(frozen=True)
class ResNeXt:
    blocks: tuple[int, ...]
    groups: int
    width: int
    classes: int
    stem: tuple[int, int] = (3, 1)  # the size of its kernel, and its stride


def channels_of(net):
    return [net.groups * net.width * 2**level for level in range(len(net.blocks))]


def kernels_of(net, colours):
    kernels, channels = {"stem": (net.stem[0], net.stem[0], colours, 64)}, 64
    for level, inner in enumerate(channels_of(net)):
        for block in range(net.blocks[level]):
            name, outer = f"block{level}_{block}", 2 * inner
            kernels[f"{name}_in"] = (1, 1, channels, inner)
            kernels[f"{name}_groups"] = (3, 3, inner // net.groups, inner)
            kernels[f"{name}_out"] = (1, 1, inner, outer)
            if channels != outer:
                kernels[f"{name}_skip"] = (1, 1, channels, outer)
            channels = outer
    return kernels


# %% [markdown]
# Each kernel has a batch norm: two variables that are trained, two statistics that are not.


# %%
def initial_layer(key, size):
    channels = size[-1]
    kernel = jax.random.normal(key, size) * np.sqrt(2 / np.prod(size[:3]))
    trained = {"kernel": kernel, "scale": jnp.ones(channels), "offset": jnp.zeros(channels)}
    return trained, {"mean": jnp.zeros(channels), "variance": jnp.ones(channels)}


def initial_variables(net, key, images):
    variables, state = {}, {}
    for name, size in kernels_of(net, images.shape[-1]).items():
        key, own = jax.random.split(key)
        variables[name], state[name] = initial_layer(own, size)
    variables["classes"] = jnp.zeros((2 * channels_of(net)[-1], net.classes))
    return variables, state


# %% [markdown]
# The network gives the scores of the classes, and the statistics as they are after this batch.


# %%
def scores_of(net, variables, state, x, training):
    new = {}

    def layer(name, x, stride=1, groups=1):
        x = convolution(variables[name]["kernel"], x, stride, groups)
        x, new[name] = batch_norm(variables[name], state[name], x, training)
        return x

    def block(name, x, stride):
        y = jax.nn.relu(layer(f"{name}_in", x))
        y = jax.nn.relu(layer(f"{name}_groups", y, stride, net.groups))
        y = layer(f"{name}_out", y)
        skip = layer(f"{name}_skip", x, stride) if f"{name}_skip" in variables else x
        return jax.nn.relu(y + skip)

    x = jax.nn.relu(layer("stem", x, net.stem[1]))
    if net.stem[1] > 1:
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for level, count in enumerate(net.blocks):
        for number in range(count):
            name = f"block{level}_{number}"
            with jax.named_scope(name):
                x = block(name, x, 2 if level and not number else 1)
    return x.mean((1, 2)) @ variables["classes"], new


# %% [markdown]
# ## The estimator
#
# `params` holds the hyperparameters, as in the guide's listings.


# %%
def model_fn(variables, features, labels, mode, params, state, global_step):
    logits, new = scores_of(params["net"], variables, state, features, mode == ModeKeys.TRAIN)
    digits = jnp.argmax(logits, axis=-1)
    if mode == ModeKeys.PREDICT:
        return IPUEstimatorSpec(mode, predictions=digits)
    rate = params["rate"] * 0.5 ** (global_step / 60)
    return IPUEstimatorSpec(
        mode,
        loss=optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(),
        train_op=optax.sgd(rate, momentum=0.9, nesterov=True),
        eval_metric_ops={"accuracy": ipu.metrics.accuracy(labels, digits)},
        state=new,
    )


def resnext_estimator(net, rate, iterations_per_loop):
    ipu_options = ipu.config.IPUConfig()
    ipu_options.auto_select_ipus = 1
    run = ipu.ipu_run_config.IPURunConfig(
        iterations_per_loop=iterations_per_loop, ipu_options=ipu_options
    )
    return IPUEstimator(
        model_fn,
        config=ipu.ipu_run_config.RunConfig(run, model_dir=tempfile.mkdtemp()),
        params={"net": net, "rate": rate},
        init_fn=functools.partial(initial_variables, net),
    )


# %% [markdown]
# ## Scaled down, it learns
#
# Two blocks of 4 groups of 2 channels, and digits of 8 x 8 pixels.

# %%
train_images, train_labels, test_images, test_labels = load_digits()


def batches(images, labels, size, epochs=1):
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(labels))
        for start in range(0, len(order) - size + 1, size):
            rows = order[start : start + size]
            yield images[rows][..., None], labels[rows]


small = resnext_estimator(ResNeXt((1, 1), groups=4, width=2, classes=10), 0.1, 20)
for _ in range(2):
    small.train(lambda: batches(train_images, train_labels, 16, 2), steps=80)
    scores = small.evaluate(lambda: batches(test_images, test_labels, 16))
    print(f"step {scores['global_step']}: accuracy {scores['accuracy']:.1%}")

# %% [markdown]
# ## Full size, modelled
#
# ResNeXt-50 with images of 224 x 224 would take this computer long. `report` needs neither time
# nor an IPU: it lowers the training program for the first element of a data set, and models it on
# the chip: what it costs, and whether it fits.

# %%
full = resnext_estimator(
    ResNeXt((3, 4, 6, 3), groups=32, width=4, classes=1000, stem=(7, 2)), 0.1, 1
)


def one_image():
    yield np.zeros((1, 224, 224, 3), np.float32), np.zeros(1, np.int32)


report = full.report(input_fn=one_image)
print(str(report).partition("\nOperations")[0])
report.memory

# %% [markdown]
# ## Try
#
# 1. Model two images a step. By how much does the time of an image change, and does it still fit?
# 2. Give `convolution` inputs and kernels in float16, as the report proposes, and compare the
#    cycles.
