# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reading a line of digits
#
# A line of handwriting is a sequence of strips of pixels, and nobody says which strip belongs to
# which character. That is what CTC, the connectionist temporal classification, is for. Here the
# IPU's operators read such lines: a layer normalisation, dropout, an LSTM, the CTC loss and the
# beam search that turns probabilities into text. At the end, float16: the way the IPU rounds
# decides whether small steps are learned at all.
#
# * **You learn** to use the IPU's operators with explicit parameters, to train with
#   `ipu.training`, and what stochastic rounding is good for.
# * **It takes** fifteen minutes to read, and half a minute to run.
# * **It needs** the first two notebooks, and the extra `notebooks`.

# %%
import itertools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import ipujax as ipu
from ipujax.demo.digits import load_digits

# %% [markdown]
# ## The lines
#
# They are put together from real digits, two or three for each line, 8 strips for each digit. What
# lies behind the last digit is noise, which the lengths tell the operators to leave alone.

# %%
train_images, train_labels, test_images, test_labels = load_digits()

LENGTH, HEIGHT = 24, 8  # strips of a line, and pixels of a strip
CLASSES, BLANK = 11, 10  # ten digits, and the blank between them
BATCH = 32


def lines(images, labels, seed):
    """Batches without end: strips [time, batch, height], digits, and how many there are."""
    random = np.random.default_rng(seed)
    while True:
        counts = random.integers(2, 4, BATCH).astype(np.int32)
        chosen = random.integers(0, len(labels), (BATCH, 3))
        strips = images[chosen].transpose(0, 1, 3, 2).reshape(BATCH, LENGTH, HEIGHT)
        behind = np.arange(LENGTH) >= 8 * counts[:, None]
        noise = random.random(strips.shape).astype(np.float32)
        strips = np.where(behind[..., None], noise, strips)
        yield strips.transpose(1, 0, 2), labels[chosen].astype(np.int32), counts


strips, digits, counts = next(lines(train_images, train_labels, 0))
figure, axes = plt.subplots(1, 4, figsize=(9, 1.4))
for place, axis in enumerate(axes):
    axis.imshow(strips[:, place].T, cmap="gray_r")
    axis.set_title(" ".join(map(str, digits[place, : counts[place]])))
    axis.axis("off")
plt.show()

# %% [markdown]
# ## The model
#
# In TensorFlow the operators made their own variables. Here parameters are explicit: a recurrent
# layer makes them with `build`, as a dict with the original's names and shapes, and takes them in
# each call; `gamma` and `beta` of a normalisation are arguments.

# %%
UNITS, SEEN, STRIDE = 64, 8, 2
LSTM = ipu.rnn_ops.PopnnLSTM(UNITS)


def initial_parameters():
    first, second, third = jax.random.split(jax.random.key(0), 3)
    return {
        "in": jax.random.normal(first, (SEEN * HEIGHT, UNITS)) / 8,
        "gamma": jnp.ones(UNITS),
        "beta": jnp.zeros(UNITS),
        "lstm": LSTM.build(second, [LENGTH // STRIDE, BATCH, UNITS]),
        "out": jax.random.normal(third, (UNITS, CLASSES)) / 8,
    }


jax.tree.map(jnp.shape, initial_parameters())

# %% [markdown]
# The layers in order: a product with what each place sees, the normalisation, dropout, the LSTM,
# and the scores of the classes.


# %%
def logits_of(parameters, strips, dropping=0.0):
    """Logits [time, batch, classes] of every second place, which sees the 8 strips around it."""
    padded = jnp.pad(strips, ((SEEN // 2, SEEN // 2 - 1), (0, 0), (0, 0)))
    seen = jnp.concatenate([padded[start : start + LENGTH] for start in range(SEEN)], axis=-1)
    hidden = jax.nn.relu(seen[1::STRIDE] @ parameters["in"])
    # Statistics are those of an example: here of a place, not of a whole line.
    flat = hidden.reshape(-1, UNITS)
    flat = ipu.normalization_ops.layer_norm(
        flat, gamma=parameters["gamma"], beta=parameters["beta"]
    )
    flat = ipu.rand_ops.dropout(flat, rate=dropping)
    outputs, _ = LSTM(parameters["lstm"], flat.reshape(hidden.shape))
    return outputs @ parameters["out"]


# %% [markdown]
# The loss needs to know how many places of each line have digits.


# %%
def places(counts):
    """How many places of each line have digits."""
    return SEEN // STRIDE * counts


def loss_of(parameters, strips, digits, counts):
    logits = logits_of(parameters, strips, dropping=0.1)
    return jnp.mean(ipu.nn_ops.ctc_loss_v2(digits, logits, counts, places(counts), BLANK))


# %% [markdown]
# The dropout has neither a seed nor a key, so in compiled code it draws from the device's seed:
# another mask in each iteration, and the same masks again after `reset_ipu_seed`. The backward
# pass draws its mask again instead of keeping it.

# %%
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()

STEPS = 300
training = ipu.training.Training(loss_of, optax.adam(5e-3))
history = ipu.training.History()

ipu.utils.reset_ipu_seed(42)
state = training.init(initial_parameters())
state = training.fit(state, lines(train_images, train_labels, 1), STEPS, [history])
parameters, losses = state.variables, history.results

figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(losses)
axes.set(xlabel="step", ylabel="CTC loss", xlim=0, ylim=0)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
print(f"mean loss of the last fifty steps: {losses[-50:].mean():.2f}")

# %% [markdown]
# ## Reading
#
# The beam search follows the most probable beginnings of a text at once, each with the probability
# of all its alignments. It runs inside the compiled program, for the whole batch.


# %%
@ipu.compile
def read(parameters, strips, counts):
    return ipu.nn_ops.ctc_beam_search_decoder(
        logits_of(parameters, strips), places(counts), beam_width=8, top_paths=2, blank_index=BLANK
    )


strips, digits, counts = next(lines(test_images, test_labels, 3))
log_probs, lengths, found = map(np.asarray, read(parameters, strips, counts))
for place in range(5):
    print("is", digits[place, : counts[place]].tolist(), end="; read as ")
    for text, length, log_prob in zip(found[place], lengths[place], log_probs[place], strict=True):
        print(text[:length].tolist(), f"({np.exp(log_prob):.2f})", end=" ")
    print()

# %% [markdown]
# How many lines are read without any mistake?


# %%
def share_read(parameters, batches=8):
    right = 0
    for strips, digits, counts in itertools.islice(lines(test_images, test_labels, 2), batches):
        _, lengths, found = map(np.asarray, read(parameters, strips, counts))
        for text, length, own, count in zip(found, lengths, digits, counts, strict=True):
            right += list(text[0, : length[0]]) == list(own[:count])
    return right / (BATCH * batches)


print(f"lines of unseen digits without a mistake: {share_read(parameters):.1%}")

# %% [markdown]
# ## In float16, as the IPU rounds
#
# Now the weights themselves are float16, and the optimizer adds small steps to them. A float16 near
# 0.25 is 0.0002 from its neighbours: a smaller step is rounded away, always, and the model
# stops learning. The IPU can round stochastically: up or down at random, the nearer neighbour more
# often, so that many small steps add up to what they should.
#
# `stochastic_rounding` rounds that way in a block; `config.floating_point_behaviour.esr` does so
# everywhere. Either changes what is computed, not only a setting.


# %%
def halved_weights(rounding):
    small = optax.sgd(1e-4)

    def step(weight, state):
        with ipu.scopes.stochastic_rounding(rounding):
            gradient = jnp.full((), -0.5, jnp.float16)
            updates, state = small.update(gradient, state)
            return optax.apply_updates(weight, updates), state

    @ipu.compile
    def run(weights):
        state = small.init(weights)
        return ipu.loops.repeat(2000, step, [weights, state])[0]

    ipu.utils.reset_ipu_seed(7)
    return np.asarray(run(jnp.full(1000, 0.25, jnp.float16)), np.float32)


# %%
nearest, stochastic = halved_weights(False), halved_weights(True)
print("2 000 steps of 0.00005 from 0.25 should give 0.35")
print(f"rounded to the nearest: {nearest.mean():.4f}")
print(f"stochastically:         {stochastic.mean():.4f}, ± {stochastic.std():.4f}")

# %% [markdown]
# ## What it would take on the chip
#
# The report of one forward and backward pass. The LSTM and the loss walk through time, in chains of
# small operations of which each waits for the one before. So a quarter of the cycles are syncs, and
# the advice is to give each step more work: larger batches.

# %%
batch = next(lines(train_images, train_labels, 0))
report = ipu.compile(jax.value_and_grad(loss_of)).lower(parameters, *batch).report()
print(f"{report.cycles:,} cycles, {report.seconds * 1e6:.0f} µs")
print(f"{report.memory.peak_bytes[0] / 2**20:.1f} MiB on the IPU at the peak")
report.memory

# %% [markdown]
# ## Try
#
# 1. Make the beam narrower, and wider. From which `beam_width` on are no more lines read?
# 2. Have `halved_weights` start at 0.5, where the neighbours of a float16 are twice as far. What
#    does stochastic rounding do to the mean, and to the spread?
