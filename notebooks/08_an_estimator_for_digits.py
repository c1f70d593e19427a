# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # An estimator for digits
#
# TensorFlow's estimators took a function that describes a model, `model_fn`, and did the rest:
# loops on the device, checkpoints, evaluation, prediction, export. Programs for IPUs swapped
# `Estimator` for `IPUEstimator` and kept everything else. This notebook follows the listings of
# Graphcore's porting guide (4.2 and 4.3) with real digits, and ends with the same model cut into
# four stages.
#
# * **You learn** to write a `model_fn` in JAX, and to train, evaluate, restore, export and serve
#   with an estimator; then the same for a pipeline.
# * **It takes** fifteen minutes to read, and half a minute to run.
# * **It needs** an idea of TensorFlow's estimators, and the extra `notebooks`.

# %%
import functools
import tempfile

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import ipujax as ipu
from ipujax.demo.digits import load_digits
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec, ModeKeys

train_images, train_labels, test_images, test_labels = load_digits()
BATCH = 32

# %% [markdown]
# ## The model
#
# In TensorFlow a `model_fn` made variables with `get_variable`, and a `train_op` with
# `optimizer.minimize(loss)`. In JAX variables are values: `init_fn` makes them once, `model_fn`
# gets them first. `train_op` is the optimizer itself, and the estimator minimizes the loss with it.
# What is not trained, here running statistics of the pixels, is `state`.


# %%
def init_fn(key, features):
    first, second = jax.random.split(key)
    pixels = features[0].size
    variables = {
        "hidden": {"w": jax.random.normal(first, (pixels, 64)) / 8, "b": jnp.zeros(64)},
        "logits": {"w": jax.random.normal(second, (64, 10)) / 8, "b": jnp.zeros(10)},
    }
    return variables, {"mean": jnp.zeros(pixels), "steps": jnp.int32(0)}


# %% [markdown]
# One function serves training, evaluation and prediction; `mode` says which it is.


# %%
def dense(layer, x):
    return x @ layer["w"] + layer["b"]


def model_fn(variables, features, labels, mode, params, state, key):
    pixels = features.reshape(features.shape[0], -1)
    x = pixels - state["mean"]
    hidden = jax.nn.relu(dense(variables["hidden"], x))
    if mode == ModeKeys.TRAIN:  # dropout: the key is another one in each step and replica
        hidden = ipu.rand_ops.dropout(hidden, rate=0.1, key=key)
    logits = dense(variables["logits"], hidden)
    predictions = {"digit": jnp.argmax(logits, axis=-1), "probability": jax.nn.softmax(logits)}
    if mode == ModeKeys.PREDICT:
        return IPUEstimatorSpec(mode, predictions=predictions)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    seen = 0.99 * state["mean"] + 0.01 * pixels.mean(axis=0)
    return IPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=ipu.optimizers.CrossReplicaOptimizer(optax.adam(params["learning_rate"])),
        eval_metric_ops={"accuracy": ipu.metrics.accuracy(labels, predictions["digit"])},
        state={"mean": seen, "steps": state["steps"] + 1},
    )


# %% [markdown]
# `input_fn` gives a data set: anything that an infeed takes, of `(features, labels)`.
# `params["batch_size"]` is what one replica gets of `train_batch_size`.


# %%
def input_fn(params, is_training):
    images, labels = (train_images, train_labels) if is_training else (test_images, test_labels)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels)) if is_training else np.arange(len(labels))
    size = params["batch_size"]
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        yield images[rows], labels[rows]


# %% [markdown]
# ## Listing 4.2: an estimator
#
# Two replicas, each on an IPU of its own, and device loops of 10 steps.


# %%
def create_ipu_estimator(model_fn, model_dir, params):
    ipu_options = ipu.config.IPUConfig()
    ipu_options.auto_select_ipus = params["num_devices"]
    ipu_run_config = ipu.ipu_run_config.IPURunConfig(
        iterations_per_loop=params["iterations_per_loop"],
        ipu_options=ipu_options,
        num_shards=1,
        num_replicas=params["num_devices"],
        autosharding=False,
    )
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu_run_config,
        log_step_count_steps=params["log_interval"],
        save_summary_steps=params["summary_interval"],
        model_dir=model_dir,
    )
    return IPUEstimator(
        config=config,
        model_fn=model_fn,
        params=params,
        train_batch_size=BATCH,
        eval_batch_size=2 * BATCH,
        init_fn=init_fn,
    )


# %% [markdown]
# All that it knows is kept in `model_dir`.

# %%
params = {
    "num_devices": 2,
    "iterations_per_loop": 10,
    "log_interval": 50,
    "summary_interval": 50,
    "learning_rate": 3e-3,
}
model_dir = tempfile.mkdtemp()
estimator = create_ipu_estimator(model_fn, model_dir=model_dir, params=params)

# %% [markdown]
# ## Listing 4.3: train and evaluate over epochs
#
# A hook is told of every device loop; this one keeps the mean losses for a plot.


# %%
class Losses(ipu.ipu_session_run_hooks.SessionRunHook):
    def __init__(self):
        self.steps, self.losses = [], []

    def after_run(self, run_context, run_values):
        self.steps.append(run_context.session.global_step)
        self.losses.append(float(np.mean(run_values.results["loss"])))


# %% [markdown]
# An epoch is one call of `train`, and its scores are those of the checkpoint that it has left.

# %%
train_input_fn = functools.partial(input_fn, is_training=True)
eval_input_fn = functools.partial(input_fn, is_training=False)
train_steps = len(train_labels) // BATCH // 10 * 10
eval_steps = len(test_labels) // (2 * BATCH) // 10 * 10 or None
losses = Losses()
for epoch in range(12):
    estimator.train(train_input_fn, hooks=[losses], steps=train_steps)
    scores = estimator.evaluate(
        eval_input_fn, checkpoint_path=estimator.latest_checkpoint(), steps=eval_steps
    )
    print(f"epoch {epoch:2}: accuracy {scores['accuracy']:.1%}, loss {scores['loss']:.3f}")

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(losses.steps, losses.losses)
axes.set(xlabel="step", ylabel="loss", xlim=0, ylim=0)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Restore, predict
#
# All that an estimator knows is in its folder. Another one, in this process or in one after a
# crash, goes on from there; and prediction takes features alone.

# %%
again = create_ipu_estimator(model_fn, model_dir=model_dir, params=params)
print(again.latest_checkpoint().rpartition("/")[2])
print(again.get_variable_names())
print("steps seen:", again.get_variable_value("state/steps"))

# %% [markdown]
# Prediction in batches of four.


# %%


def eight_digits():
    return [test_images[start : start + 4] for start in (0, 4)]


for prediction, label in zip(again.predict(eight_digits), test_labels, strict=False):
    sure = prediction["probability"][prediction["digit"]]
    print(f"it is {label}, predicted {prediction['digit']} ({sure:.0%})")

# %% [markdown]
# ## Export, serve
#
# The trained model becomes a file that needs none of this code: the Program, its kernels, and the
# variables as constants. `ipu.load_executable` reads it in any process.


# %%
def serving_input_receiver_fn():
    return jax.ShapeDtypeStruct((8, *test_images.shape[1:]), test_images.dtype)


folder = again.export_saved_model(tempfile.mkdtemp(), serving_input_receiver_fn)
serve = ipu.load_executable(folder)
print("served:", serve(test_images[:8])["digit"])
print("it is: ", test_labels[:8])

# %% [markdown]
# ## Four stages
#
# `IPUPipelineEstimator` is the same for a pipeline. Its `model_fn` takes no features: it returns
# stages, which take the variables first. Each step is now a micro-batch, eight of them make a
# weight update.

# %%
from ipujax.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from ipujax.pipelining_ops import OptimizerFunctionOutput

SIZES = [64, 64, 48, 48, 10]


def pipeline_init_fn(key, features):
    keys = jax.random.split(key, 4)
    shapes = zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    return [
        {"w": jax.random.normal(k, (n, m)) / np.sqrt(n), "b": jnp.zeros(m)} for k, n, m in shapes
    ]


# %% [markdown]
# Each of the first three stages is a layer that hands on the labels. The last one gives the digit
# alone when there are no labels, and otherwise what the optimizer and the metrics need.


# %%
def stage(number):
    def forward(variables, x, *labels):
        x = dense(variables[number], x.reshape(x.shape[0], -1))
        return (jax.nn.relu(x) if number < 3 else x, *labels)

    return forward


def pipeline_model_fn(mode, params):
    def last(variables, x, labels=None):
        (logits,) = stage(3)(variables, x)
        if mode == ModeKeys.PREDICT:
            return jnp.argmax(logits, axis=-1)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), jnp.argmax(logits, axis=-1), labels

    def optimizer_function(loss, digits, labels):
        return OptimizerFunctionOutput(optax.adam(params["learning_rate"]), loss)

    def eval_metrics_fn(loss, digits, labels):
        return {"accuracy": ipu.metrics.accuracy(labels, digits), "loss": loss}

    return IPUPipelineEstimatorSpec(
        mode,
        computational_stages=[stage(0), stage(1), stage(2), last],
        gradient_accumulation_count=8,
        eval_metrics_fn=eval_metrics_fn,
        optimizer_function=optimizer_function,
        pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Grouped,
    )


# %% [markdown]
# The rest is as before.

# %%
ipu_options = ipu.config.IPUConfig()
ipu_options.auto_select_ipus = 4
four = IPUPipelineEstimator(
    pipeline_model_fn,
    config=ipu.ipu_run_config.RunConfig(
        ipu.ipu_run_config.IPURunConfig(
            iterations_per_loop=40, ipu_options=ipu_options, num_shards=4
        )
    ),
    params={"learning_rate": 3e-3, "batch_size": 8},
    init_fn=pipeline_init_fn,
)
for _ in range(8):
    four.train(train_input_fn, steps=len(train_labels) // 8 // 40 * 40)
scores = four.evaluate(eval_input_fn)
print(f"{scores['global_step']} micro-batches: accuracy {scores['accuracy']:.1%}")

# %% [markdown]
# ## Try
#
# 1. Add the share of digits that are among the two most probable to `eval_metric_ops`;
#    `ipu.metrics` has means. Where does it show?
# 2. Train three epochs, make a new estimator with the same `model_dir`, and train on. What does
#    `steps seen` say?
