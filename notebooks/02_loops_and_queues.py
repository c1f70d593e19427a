# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Loops and queues
#
# A training loop in Python asks the device for one step, waits, and asks again. An IPU program
# contains the loop. Once it is started the host has two jobs left: it pours data into one queue
# and drinks results from another.
#
# This notebook trains a classifier of handwritten digits that way: first over two shards, with the
# losses read while the loop runs; then with replicas that average their gradients. In between the
# data runs out on purpose, and we look at what can be seen from inside a running program.
#
# * **You learn** to put a training loop on the device, to feed it and to read it while it runs, to
#   go on after its data has ended, and to train with replicas.
# * **It takes** twenty minutes to read, and twenty seconds to run.
# * **It needs** the first notebook, an idea of optax, and the extra `notebooks`. The digits come
#   with ipujax.

# %%
import contextlib
import io
import itertools
import threading

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import ipujax as ipu
from ipujax.demo.digits import load_digits

# %% [markdown]
# The digits have 8 x 8 pixels.

# %%
train_images, train_labels, test_images, test_labels = load_digits()
print("images", train_images.shape, train_images.dtype)
print("labels", train_labels.shape, train_labels.dtype)

figure, axes = plt.subplots(1, 8, figsize=(7, 1.2))
for axis, image, label in zip(axes, train_images, train_labels, strict=False):
    axis.imshow(image, cmap="gray_r")
    axis.set_title(label)
    axis.axis("off")
plt.show()

# %% [markdown]
# ## A step, and the loop around it
#
# Two layers, each with an IPU of its own. The marks say so, and the gradients will follow them.

# %%
config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()

BATCH = 32


def initial_weights():
    first, second = jax.random.split(jax.random.key(0))
    return {
        "w0": jax.random.normal(first, (64, 64)) / 8,
        "b0": jnp.zeros(64),
        "w1": jax.random.normal(second, (64, 10)) / 8,
        "b1": jnp.zeros(10),
    }


def logits_of(weights, images):
    with ipu.scopes.ipu_shard(0):
        flat = images.reshape(images.shape[0], -1)
        hidden = jax.nn.relu(flat @ weights["w0"] + weights["b0"])
    with ipu.scopes.ipu_shard(1):
        return hidden @ weights["w1"] + weights["b1"]


def loss_of(weights, images, labels):
    logits = logits_of(weights, images)
    with ipu.scopes.ipu_shard(1):
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


# %% [markdown]
# Ten digits are guessed right once in ten times, and so are they before training.


# %%
@ipu.compile
def predict(weights, images):
    return jnp.argmax(logits_of(weights, images), axis=1)


def accuracy(weights):
    return float(np.mean(np.asarray(predict(weights, test_images)) == test_labels))


print(f"before training: {accuracy(initial_weights()):.1%}")

# %% [markdown]
# An infeed wraps whatever yields pytrees of arrays: a list, a generator, a loader of another
# library. An element that is a tuple becomes positional arguments of the loop's body, a dict
# keyword arguments. All elements must have one shape, which is why `batches` drops what is left
# over at the end of an epoch.
#
# TensorFlow would have kept the weights in the graph. Here they are loop variables, explicit as
# everywhere in JAX: they go in, and the new ones come out.


# %%
def batches(epochs=None):
    """Shuffled batches of digits, for so many epochs or without end."""
    rng = np.random.default_rng(0)
    for _ in itertools.count() if epochs is None else range(epochs):
        order = rng.permutation(len(train_labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            yield train_images[rows], train_labels[rows]


# %% [markdown]
# A step is plain JAX and optax, but for the line that puts the loss into the outfeed. `repeat`
# makes six hundred of it, with a batch of the infeed for each.

# %%
optimizer = optax.adam(2e-3)
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches)
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def step(weights, state, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    outfeed.enqueue(loss)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(weights, updates), state


STEPS = 600


@ipu.compile
def train(weights, state):
    return ipu.loops.repeat(STEPS, step, [weights, state], infeed)


# %% [markdown]
# The program's text has the loop in it, with the loop variables, the element that streams in and
# the loss that streams out. These are the lines that say so; the rest are kernels and copies as in
# the first notebook. Each loop variable stays on the IPU that updates it: the first layer's
# weights, and Adam's moments of them, on IPU 0, the second layer's on IPU 1.

# %%
weights = initial_weights()
state = optimizer.init(weights)
for line in train.lower(weights, state).as_text().splitlines():
    if line.lstrip().startswith(("repeat", "carry", "stream")):
        print(line)

# %% [markdown]
# ## Reading the outfeed while the loop runs
#
# `train(...)` does not return before its six hundred steps are done, so another thread calls it,
# and this one iterates over the outfeed. Iterating waits for more as long as a program that
# enqueues is running, and then ends; it also ends when none has started yet, which is why there is
# a loop around it.

# %%
done = []
trainer = threading.Thread(target=lambda: done.append(train(weights, state)))
losses, live = [], 0

trainer.start()
while trainer.is_alive() or len(losses) < STEPS:
    for loss in outfeed:
        losses.append(float(loss))
        live += not done
        if len(losses) % 100 == 0:
            print(f"step {len(losses):>3}  loss {loss:.3f}")
    trainer.join(0.001)

weights, state = done[0]
print(f"{live} of {len(losses)} losses came while the loop was still running")

# %% [markdown]
# What it has learned shows in the losses, and in digits that it has not seen.

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(losses)
axes.set(xlabel="step", ylabel="loss", xlim=0, ylim=0)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

print(f"after training: {accuracy(weights):.1%} of {len(test_labels)} digits are right")

# %% [markdown]
# Who does not need the losses live calls `outfeed.dequeue()` afterwards and gets them in one
# array, with a leading axis of iterations.
#
# ## When the data ends before the loop
#
# A data set never restarts by itself. Two epochs are 88 batches; asking for a hundred steps is a
# mistake, and a common one.

# %%
print("batches in two epochs:", sum(1 for _ in batches(2)))

infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches(2))  # `step` is as before; the loop is new


@ipu.compile
def hundred_steps(weights, state):
    return ipu.loops.repeat(100, step, [weights, state], infeed)


weights = initial_weights()
try:
    hundred_steps(weights, optimizer.init(weights))
except ipu.errors.OutOfRangeError as error:
    ended = error
print(ended)

# %% [markdown]
# Nothing is lost. The losses of the steps that were made are in the outfeed, and `carried` has the
# loop variables after the last of them, in the structure of the loop's inputs.

# %%
weights, state = ended.carried
so_far = outfeed.dequeue()
print(f"{len(so_far)} losses, {so_far[0]:.3f} -> {so_far[-1]:.3f}")
print(f"accuracy after {len(so_far)} steps: {accuracy(weights):.1%}")

# %% [markdown]
# To go on, give the loop a fresh queue and the carried variables. A queue belongs to the functions
# that were traced with it, so there is a function for the new one too. This time the data set is
# repeated on purpose. The number of steps is an argument now: `repeat` also takes a count that is
# known at run time only, and one compiled program serves for any of them.

# %%
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(itertools.cycle(batches(2)))


@ipu.compile
def more_steps(steps, weights, state):
    return ipu.loops.repeat(steps, step, [weights, state], infeed)


before = accuracy(weights)
weights, state = more_steps(12, weights, state)
weights, state = more_steps(200, weights, state)
more_losses = outfeed.dequeue()
print(f"{len(more_losses)} losses more, accuracy {before:.1%} -> {accuracy(weights):.1%}")
print(f"Adam has counted {state[0].count} steps")  # none was lost, none made twice

# %% [markdown]
# ## Replicas
#
# The same step on a device of eight IPUs: the model needs two, so there are four replicas, and
# each takes batches of its own from the infeed. One step now consumes four batches, and the only
# thing to add is that replicas agree on a gradient: their mean.
#
# `ipu.training` writes all of it: the step, which averages over replicas unless told otherwise, the
# loop around it, both queues, and what reads the results.

# %%
config.auto_select_ipus = 8
config.configure_ipu_system()

training = ipu.training.Training(loss_of, optimizer, name="replicated_train")
start, history = training.init(initial_weights()), ipu.training.History()
print(training.compile(start, batches, 150).lowered.as_text().partition("\n")[0])
weights = training.fit(start, batches, 150, [history]).variables

# %% [markdown]
# Each step has four losses, since four replicas have seen four batches.

# %%
losses = history.results
print("losses:", losses.shape, "the first step's:", np.round(losses[0], 3))
print(f"accuracy: {accuracy(weights):.1%}")

# %% [markdown]
# The mean of four gradients of 32 digits is the gradient of 128 digits, so plain JAX, with no IPU
# anywhere, must get the same losses from batches four times as large.

# %%
plain_step = jax.jit(jax.value_and_grad(loss_of))
weights, source = initial_weights(), batches()
state = optimizer.init(weights)
plain = []
for _ in range(20):
    images, labels = map(np.concatenate, zip(*itertools.islice(source, 4), strict=True))
    loss, gradients = plain_step(weights, images, labels)
    updates, state = optimizer.update(gradients, state)
    weights = optax.apply_updates(weights, updates)
    plain.append(float(loss))

difference = np.abs(losses[:20].mean(axis=1) - plain).max()
print(f"largest difference in twenty steps: {difference:.1e}")

# %% [markdown]
# ## Looking inside a running program
#
# `print_tensor` prints an array whenever the program comes by, and passes it on. It writes to
# standard error; here that is caught, to show it is all there. The host prints behind the program,
# and `jax.effects_barrier()` waits until it has caught up.

# %%
config.auto_select_ipus = 1
config.configure_ipu_system()


def halve(x):
    return ipu.internal_ops.print_tensor(x / 2, "x")


caught = io.StringIO()
with contextlib.redirect_stderr(caught):
    ipu.compile(lambda x: ipu.loops.repeat(3, halve, [x]))(np.float32(8))
    jax.effects_barrier()
print(caught.getvalue())

# %% [markdown]
# `outside_compilation_scope` goes further. Its operations run on the host, between two segments of
# the program on the device, and their results go back. In the text they are a `host-call`, with
# the values copied from the device before and to it after. A program cannot leave the device in
# the middle of a loop, though, so this belongs around loops and not into them.


# %%
@ipu.compile
def with_a_visit_to_the_host(x):
    y = x * 2
    with ipu.scopes.outside_compilation_scope("visit"):
        z = jnp.sort(y)
    return z + 1


x = np.float32([3, 1, 2])
print(with_a_visit_to_the_host.lower(x))
print(with_a_visit_to_the_host(x))

# %% [markdown]
# In a loop it is refused, and the error says what to do.


# %%
def with_a_visit_in_the_loop(x):
    with ipu.scopes.outside_compilation_scope("visit"):
        return x + 1


try:
    ipu.compile(lambda x: ipu.loops.repeat(3, with_a_visit_in_the_loop, [x]))(x)
except ipu.errors.OutsideCompilationError as error:
    print(error)

# %% [markdown]
# ## Try
#
# 1. Enqueue the accuracy of each batch beside its loss, as a dict. What does `dequeue` give now?
# 2. Train with `auto_select_ipus = 16`. How many replicas are there, and how many steps does it
#    take to the same accuracy?
