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

train_images, train_labels, test_images, test_labels = load_digits()
print(train_images.shape, train_images.dtype, train_labels.shape, train_labels.dtype)

for row in train_images[0]:
    print("".join(" .:-=+*#%@"[int(pixel * 9.99)] * 2 for pixel in row))
print("is a", train_labels[0])

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
text = train.lower(weights, state).as_text()
loop_lines = [
    line[:99]
    for line in text.splitlines()
    if line.lstrip().startswith(("repeat", "carry", "stream"))
]
print("\n".join(loop_lines))

assert sum("carry ipu 0" in line and "float32[64,64]" in line for line in loop_lines) == 3
assert sum("carry ipu 1" in line and "float32[64,10]" in line for line in loop_lines) == 3

# %% [markdown]
# ## Reading the outfeed while the loop runs
#
# `train(...)` does not return before its six hundred steps are done, so another thread calls it,
# and this one iterates over the outfeed. Iterating waits for more as long as a program that
# enqueues is running, and then ends; it also ends when none has started yet, which is why there is
# a loop around it. The losses that came before the program had ended are marked with a `*`.

# %%
done = []
trainer = threading.Thread(target=lambda: done.append(train(weights, state)))
losses, live = [], 0

trainer.start()
while trainer.is_alive() or len(losses) < STEPS:
    for loss in outfeed:
        losses.append(float(loss))
        live += not done
        if len(losses) % 50 == 0:
            bar = "#" * int(loss * 20) + ("" if done else "*")
            print(f"step {len(losses):>3}  loss {loss:.3f} {bar}")
    trainer.join(0.001)
    assert trainer.is_alive() or done, "the trainer failed"

weights, state = done[0]
print(f"{live} of {len(losses)} losses came while the loop was still running")
assert len(losses) == STEPS
assert live > 0
assert np.mean(losses[-20:]) < np.mean(losses[:20]) / 4

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(losses)
axes.set(xlabel="step", ylabel="loss")
axes.spines[["top", "right"]].set_visible(False)

reached = accuracy(weights)
print(f"after training: {reached:.1%} of {len(test_labels)} digits that it has not seen")
assert reached > 0.9

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
assert isinstance(ended, EOFError)
assert (ended.requested, ended.available) == (100, 88)

# %% [markdown]
# Nothing is lost. The losses of the steps that were made are in the outfeed, and `carried` has the
# loop variables after the last of them, in the structure of the loop's inputs.

# %%
weights, state = ended.carried
so_far = outfeed.dequeue()
print(so_far.shape, so_far.dtype, f"{so_far[0]:.3f} -> {so_far[-1]:.3f}")
print(f"accuracy after 88 steps: {accuracy(weights):.1%}")
assert so_far.shape == (88,)

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
print(more_losses.shape, f"accuracy {before:.1%} -> {accuracy(weights):.1%}")
assert more_losses.shape == (212,)
assert accuracy(weights) > before
assert int(state[0].count) == 88 + 212  # Adam counts its steps: none was lost, none made twice

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
losses = history.results
print("losses:", losses.shape, "the first step's:", np.round(losses[0], 3))
print(f"accuracy: {accuracy(weights):.1%}")
assert losses.shape == (150, 4)
assert len(set(losses[0].tolist())) == 4  # four batches, four losses
assert accuracy(weights) > 0.9

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
assert difference < 1e-4

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
    last = ipu.compile(lambda x: ipu.loops.repeat(3, halve, [x]))(np.float32(8))
    jax.effects_barrier()
print(caught.getvalue())
printed = [line for line in caught.getvalue().splitlines() if line.startswith("x: ")]
assert printed == ["x: 4.0", "x: 2.0", "x: 1.0"]
assert float(last) == 1.0

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
visit_text = with_a_visit_to_the_host.lower(x).as_text()
print(visit_text)
print(with_a_visit_to_the_host(x))
steps = [line.strip().partition(":")[0] for line in visit_text.splitlines()]
visit = steps.index("host-call visit")
assert (steps[visit - 1], steps[visit + 1]) == ("copy ipu 0 -> host", "copy host -> ipu 0")
np.testing.assert_array_equal(with_a_visit_to_the_host(x), [3, 5, 7])


# %%
def with_a_visit_in_the_loop(x):
    with ipu.scopes.outside_compilation_scope("visit"):
        return x + 1


try:
    ipu.compile(lambda x: ipu.loops.repeat(3, with_a_visit_in_the_loop, [x]))(x)
except ipu.errors.OutsideCompilationError as error:
    print(error)
else:
    raise AssertionError("the loop went to the host")
