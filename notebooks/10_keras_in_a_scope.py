# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Keras in a scope
#
# Graphcore's slides put a Keras script for GPUs beside the same script for IPUs: four lines more,
# an import, a configuration, and a scope around the rest. This notebook runs both listings, and
# then a second script, for digits, in four ways: plain, with many steps per execution, on two
# replicas, and as a pipeline over four IPUs.
#
# * **You learn** to run a Keras script as programs for IPUs, and to train the same model in loops
#   on the device, on replicas and as a pipeline.
# * **It takes** fifteen minutes to read, and a minute to run.
# * **It needs** Keras as far as `fit`, and the extras `keras` and `notebooks`.
#
# Keras runs on JAX here. It reads which backend to use when it is first imported.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"

import time

import keras
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from keras.layers import Activation, Conv2D, Dense, Dropout, Flatten, MaxPooling2D

from ipujax.demo.digits import load_digits

# %% [markdown]
# ## The data
#
# The slides train on CIFAR-10, which would have to be downloaded. In its place are pictures drawn
# here, in the same form but smaller, 16 x 16 pixels: ten classes, five shapes each of which is
# either warm or cold in colour, at any place and size, on noise.


# %%
def draw_shapes(count, seed, size=16):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    shape, is_cold = (part[:, None, None] for part in (labels // 2, labels % 2))
    centre_y, centre_x = random.uniform(6, size - 7, (2, count, 1, 1))
    radius = random.uniform(3.5, 5, (count, 1, 1))
    rows, columns = np.mgrid[:size, :size]
    down, right = np.abs(rows - centre_y), np.abs(columns - centre_x)
    far = np.hypot(down, right)
    inside = np.select(
        [shape == 0, shape == 1, shape == 2, shape == 3, shape == 4],
        [
            far < radius,  # a disc
            (far < radius) & (far > radius - 1.6),  # a ring
            (np.minimum(down, right) < 1) & (np.maximum(down, right) < radius),  # a cross
            (right < radius) & (rows % 3 == 0) & (down < radius),  # stripes
            np.maximum(down, right) < radius * 0.8,  # a square
        ],
    )
    hue = np.where(is_cold[..., None], [0.2, 0.2, 1], [1, 0.2, 0.2])
    colour = random.uniform(150, 255, (count, 1, 1, 1)) * hue
    noise = random.uniform(0, 50, (count, size, size, 3))
    images = np.where(inside[..., None], colour, noise)
    return images.astype(np.uint8), labels


# %% [markdown]
# Eight of them, with their names.


# %%
def load_data():
    return draw_shapes(1024, seed=0), draw_shapes(256, seed=1)


shapes = ("disc", "ring", "cross", "stripes", "square")
names = [f"{hue} {shape}" for shape in shapes for hue in ("warm", "cold")]
_, (pictures, kinds) = load_data()
figure, axes = plt.subplots(1, 8, figsize=(12, 2))
for axis, picture, kind in zip(axes, pictures, kinds, strict=False):
    axis.imshow(picture)
    axis.set_title(names[kind], fontsize=8)
    axis.axis("off")
plt.show()

# %% [markdown]
# ## The first listing: Keras alone
#
# The script of the slides, but for three things. `tf.data` is TensorFlow's, so `fit` gets the
# arrays themselves. Batches of 16 instead of 64, and a learning rate of 0.05 instead of 0.016, do
# in six short epochs what the slides leave to forty long ones. And the seed is set, so that the
# two listings can be compared.

# %%
(x_train, y_train), (x_test, y_test) = load_data()
x_train = x_train.astype("float32") / 255.0
y_train = keras.utils.to_categorical(y_train, 10)


def slides_model():
    return keras.Sequential(
        [
            keras.Input(x_train.shape[1:]),
            Conv2D(32, (3, 3), padding="same"),
            Activation("relu"),
            Conv2D(32, (3, 3)),
            Activation("relu"),
            MaxPooling2D(pool_size=(2, 2)),
            Dropout(0.25),
            Conv2D(64, (3, 3), padding="same"),
            Activation("relu"),
            Conv2D(32, (3, 3)),
            Activation("relu"),
            MaxPooling2D(pool_size=(2, 2)),
            Dropout(0.25),
            Flatten(),
            Dense(512),
            Activation("relu"),
            Dropout(0.5),
            Dense(10),
            Activation("softmax"),
        ]
    )


# %%
def fit_slides_model():
    keras.utils.set_random_seed(1)
    model = slides_model()
    model.compile(
        loss="categorical_crossentropy",
        optimizer=keras.optimizers.SGD(learning_rate=0.05),
        metrics=["accuracy"],
    )
    return model, model.fit(x_train, y_train, batch_size=16, epochs=6, verbose=2)


model_alone, alone = fit_slides_model()

# %% [markdown]
# ## The second listing: the same in the scope
#
# An import, a configuration, and the scope; what runs in it is the same function.

# %%
import ipujax as ipu

cfg = ipu.config.IPUConfig()
cfg.auto_select_ipus = 1
cfg.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    model, in_scope = fit_slides_model()

# %% [markdown]
# Keras's step is a function of the model's variables and a batch. In the scope the same function is
# compiled as a program for the IPU, and so the numbers are the same to the last bit: losses,
# accuracies, dropout's masks, weights.

# %%
pairs = zip(model.get_weights(), model_alone.get_weights(), strict=True)
print("the same history:", in_scope.history == alone.history)
print("the same weights:", all(np.array_equal(ours, theirs) for ours, theirs in pairs))

# %% [markdown]
# `evaluate` in a scope is a program, too.

# %%
x_test = x_test.astype("float32") / 255.0
y_test = keras.utils.to_categorical(y_test, 10)
with ipu.ipu_strategy.IPUStrategy().scope():
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=32, verbose=0)
print(f"pictures that were not trained on: accuracy {accuracy:.0%}")

# %% [markdown]
# ## Digits, four ways
#
# The script that every user of Keras knows is MNIST's. Here it is with real digits of 8 x 8 pixels,
# which come with ipujax. A weight update is made of 32 pictures in all four cases; what differs is
# how they get to the IPUs.

# %%
images, labels, test_images, test_labels = load_digits()
images, labels = images[:1408, ..., None], labels[:1408]  # 44 weight updates in an epoch
test_images = test_images[..., None]


def configure(ipus):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def make_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            Conv2D(16, 3, padding="same", activation="relu", name="first"),
            Conv2D(32, 3, padding="same", activation="relu", name="second"),
            MaxPooling2D(name="pool"),
            Flatten(name="flatten"),
            Dense(64, activation="relu", name="hidden"),
            Dense(10, name="scores"),
        ]
    )


# %% [markdown]
# All four are trained by this function, which also says how long the epochs took.


# %%
class Epochs(keras.callbacks.Callback):
    """Notes when epochs end."""

    def on_train_begin(self, logs=None):
        self.ends = [time.perf_counter()]

    def on_epoch_end(self, epoch, logs=None):
        self.ends.append(time.perf_counter())


def train(model, batch_size, steps_per_execution=1):
    model.compile(
        optimizer=keras.optimizers.Adam(0.002),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
    epochs = Epochs()
    history = model.fit(
        images, labels, batch_size, epochs=6, shuffle=False, verbose=0, callbacks=[epochs]
    ).history
    seconds = np.diff(epochs.ends)
    print(f"loss {history['loss'][-1]:.4f}, accuracy {history['accuracy'][-1]:.1%}")
    print(f"an epoch: {seconds[1:].min():.2f} s; the first, which compiles: {seconds[0]:.1f} s")
    return history


results = {}

# %% [markdown]
# Plain: each batch is one run of a program on one IPU.

# %%
strategy = ipu.ipu_strategy.IPUStrategy()
configure(1)
with strategy.scope():
    results["1 IPU, plain"] = train(make_model(), batch_size=32)

# %% [markdown]
# With `steps_per_execution`: the 44 batches of an epoch are one loop on the device. An infeed
# fetches the next ones while it runs, and callbacks for batches see every 44th.

# %%
with strategy.scope():
    results["1 IPU, steps_per_execution=44"] = train(make_model(), 32, steps_per_execution=44)

# %% [markdown]
# Two replicas: the device has two IPUs, and the model needs one. Each replica takes 16 pictures,
# their gradients are averaged, and both make the same update. `batch_size` is that of one replica,
# and `steps_per_execution` counts the batches of both.

# %%
configure(2)
with strategy.scope():
    results["2 replicas"] = train(make_model(), batch_size=16, steps_per_execution=88)

# %% [markdown]
# A pipeline: the layers are assigned to four stages, each on an IPU of its own. Eight batches of 4
# are on their way through them, and their gradients make one update. The grouped schedule asks for
# at least so many: with four of 8, an error says that the number must be a multiple of 8.

# %%
configure(4)
with strategy.scope():
    pipelined = make_model()
    pipelined.set_pipeline_stage_assignment([0, 1, 1, 1, 2, 3])
    pipelined.set_pipelining_options(
        gradient_accumulation_steps_per_replica=8,
        pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Grouped,
    )
    pipelined.print_pipeline_stage_assignment_summary(line_length=80)
    results["pipeline over 4 IPUs"] = train(pipelined, batch_size=4, steps_per_execution=352)

# %% [markdown]
# All four make the same updates of the same pictures, so their curves lie on one another: they are
# drawn with ever thinner lines. What differs is the order in which numbers are added, and with it
# their last bits, which training then makes larger.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.5))
for width, (name, history) in zip((12, 8, 4, 1.5), results.items(), strict=True):
    left.plot(history["loss"], linewidth=width, label=name)
    right.plot(history["accuracy"], linewidth=width)
left.set(xlabel="epoch", ylabel="loss", xticks=range(6))
right.set(xlabel="epoch", ylabel="accuracy", xticks=range(6))
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
left.legend(frameon=False)
plt.show()

# %% [markdown]
# `evaluate` and `predict` of the pipelined model are pipelines too.

# %%
with strategy.scope():
    loss, accuracy = pipelined.evaluate(test_images, test_labels, batch_size=36, verbose=0)
    scores = pipelined.predict(test_images[:8], batch_size=8, verbose=0)
print(f"digits that were not trained on: accuracy {accuracy:.1%}")
print("predicted", scores.argmax(axis=-1), "it is", test_labels[:8])

# %% [markdown]
# ## The report
#
# What would real IPUs make of the pipeline? The model's report is that of its training program: one
# execution, 44 updates. Digits are small: most of the time goes into moving them, and into stages
# that wait. Nothing of it was measured: it is a model of the machine.

# %%
report = pipelined.report()
print(f"{report.pipeline.bubble_fraction:.0%} of all ticks have no task")
display(report)

# %% [markdown]
# ## Try
#
# 1. Let the pipeline have 16 micro-batches of 2. What happens to the share of ticks without a task,
#    and what to the loss?
# 2. Assign all layers but the last to stage 0, so that there are two stages. What does the report
#    say of the time now, and on how many IPUs?
