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

# %%
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


class ResNeXt:
    """Layers by name; `sizes` lists their kernels as (height, width, channels in, out)."""

    def __init__(self, blocks, groups, width, classes, stem=(3, 1)):
        self.blocks, self.groups, self.classes, self.stem = blocks, groups, classes, stem
        self.channels = [groups * width * 2**level for level in range(len(blocks))]

    def sizes(self, colours):
        kernels, channels = {"stem": (self.stem[0], self.stem[0], colours, 64)}, 64
        for level, (count, inner) in enumerate(zip(self.blocks, self.channels, strict=True)):
            for block in range(count):
                name, outer = f"block{level}_{block}", 2 * inner
                kernels[f"{name}_in"] = (1, 1, channels, inner)
                kernels[f"{name}_groups"] = (3, 3, inner // self.groups, inner)
                kernels[f"{name}_out"] = (1, 1, inner, outer)
                if channels != outer:
                    kernels[f"{name}_skip"] = (1, 1, channels, outer)
                channels = outer
        return kernels

    def init(self, key, images):
        variables, state = {}, {}
        sizes = self.sizes(images.shape[-1])
        for name, size in sizes.items():
            key, mine = jax.random.split(key)
            fan_in = np.prod(size[:3])
            variables[name] = {
                "kernel": jax.random.normal(mine, size) * np.sqrt(2 / fan_in),
                "scale": jnp.ones(size[-1]),
                "offset": jnp.zeros(size[-1]),
            }
            state[name] = {"mean": jnp.zeros(size[-1]), "variance": jnp.ones(size[-1])}
        variables["classes"] = jnp.zeros((2 * self.channels[-1], self.classes))
        return variables, state

    def apply(self, variables, state, x, training):
        new = {}

        def layer(name, x, stride=1, groups=1):
            x = convolution(variables[name]["kernel"], x, stride, groups)
            x, new[name] = batch_norm(variables[name], state[name], x, training)
            return x

        x = jax.nn.relu(layer("stem", x, self.stem[1]))
        if self.stem[1] > 1:
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for level, count in enumerate(self.blocks):
            for block in range(count):
                name, stride = f"block{level}_{block}", 2 if level and not block else 1
                with jax.named_scope(name):
                    y = jax.nn.relu(layer(f"{name}_in", x))
                    y = jax.nn.relu(layer(f"{name}_groups", y, stride, self.groups))
                    y = layer(f"{name}_out", y)
                    skip = layer(f"{name}_skip", x, stride) if f"{name}_skip" in variables else x
                    x = jax.nn.relu(y + skip)
        return x.mean((1, 2)) @ variables["classes"], new


# %% [markdown]
# ## The estimator
#
# `params` holds the hyperparameters, as in the guide's listings.


# %%
def model_fn(variables, features, labels, mode, params, state, global_step):
    net = params["net"]
    logits, new = net.apply(variables, state, features, mode == ModeKeys.TRAIN)
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
        init_fn=net.init,
    )


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
assert scores["accuracy"] > 0.85

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
