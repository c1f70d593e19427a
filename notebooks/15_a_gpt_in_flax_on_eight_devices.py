# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A GPT in flax on eight devices
#
# This notebook is for people who have a JAX model and several devices. It takes a small GPT in
# flax, written as one writes it for one device, and trains it as a pipeline: four stages by 1F1B,
# each stage on two devices that share the batch. The losses are those of plain `jax.jit`, and each
# device holds the parameters of its own stage and no others.
#
# * **You learn** to train a JAX model as a pipeline on several devices, with two changed lines, and
#   to see where its parameters are and when each stage works.
# * **It takes** fifteen minutes to read, and a minute to run.
# * **It needs** JAX, an idea of flax and optax, flax itself, and the extra `notebooks`.
#
# Eight devices of a CPU will do. JAX makes them if it is told before it computes anything.

# %%
import collections
from pydoc_data.topics import topics

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import linen as nn

import ipujax as ipu
from ipujax.scopes import pipeline_stage

jax.config.update("jax_num_cpu_devices", 8)
print(len(jax.devices()), "devices")

# %% [markdown]
# ## The model
#
# Four blocks of a transformer between an embedding and a head. The head is the embedding again,
# transposed: the two are *tied*, as in GPT-2. There is nothing of ours in it but the `with`
# statements, which say which stage the code below is in. Without a pipeline they do nothing. (With
# `stages=4` in `value_and_grad`, further down, not even these are needed: it finds where to cut.)

# %%
text = "\n".join(topics[name] for name in sorted(topics))
alphabet = sorted(char for char, count in collections.Counter(text).items() if count >= 20)
code_of = {char: code for code, char in enumerate(alphabet)}
codes = np.array([code_of[char] for char in text if char in code_of], np.int32)


# %%
WIDTH, HEADS, LAYERS, LENGTH = 64, 4, 4, 32


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=HEADS)(y, y, mask=mask)
        y = nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))
        return x + nn.Dense(WIDTH)(nn.gelu(y))


class GPT(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(len(alphabet), WIDTH, name="embed")
        positions = self.param("positions", nn.initializers.normal(0.1), (LENGTH, WIDTH))
        with pipeline_stage(0):
            x = embed(tokens) + positions
        for i in range(LAYERS):
            with pipeline_stage(i):
                x = Block(name=f"block_{i}")(x)
        with pipeline_stage(LAYERS - 1):
            return embed.attend(nn.LayerNorm(name="norm")(x))


# %%
gpt = GPT()


def loss_fn(params, windows):
    logits = gpt.apply(params, windows[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean()


initialize = jax.jit(gpt.init)


def initial_parameters():
    return initialize(jax.random.key(0), jnp.zeros((1, LENGTH), jnp.int32))


print(sum(leaf.size for leaf in jax.tree.leaves(initial_parameters())), "parameters")

# %% [markdown]
# ## The step for one device
#
# What everybody has. It is here to compare with.

# %%
BATCH, MICRO_BATCHES = 32, 8
optimizer = optax.adam(3e-3)


def batches(seed):
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(codes) - LENGTH, BATCH)
        yield codes[starts[:, None] + np.arange(LENGTH + 1)]


# %%
@jax.jit
def plain_step(params, opt_state, windows):
    loss, grads = jax.value_and_grad(loss_fn)(params, windows)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def train(step, updates):
    params = initial_parameters()
    opt_state = optimizer.init(params)
    losses = []
    for _, windows in zip(range(updates), batches(seed=1), strict=False):
        params, opt_state, loss = step(params, opt_state, windows)
        losses.append(loss)
    return params, opt_state, np.array([float(loss) for loss in losses])


UPDATES = 40
plain_params, _, plain_losses = train(plain_step, UPDATES)
print(f"loss {plain_losses[0]:.2f} -> {plain_losses[-1]:.2f}")

# %% [markdown]
# ## The step for eight
#
# * `value_and_grad` takes the place of JAX's. It cuts the function at its marks, and runs a
#   pipeline over eight micro-batches.
# * `ipu.meshes(4, {"data": 2})` are four meshes of two devices, one for each stage.
# * `with_sharding_constraint` shards the windows of a micro-batch over the two.
# * `ipu.compile` takes the place of `jax.jit`.
#
# The update is ordinary optax. It runs on the devices where its gradient is.

# %%
meshes = ipu.meshes(4, {"data": 2})


def sharded_loss_fn(params, windows):
    return loss_fn(params, jax.lax.with_sharding_constraint(windows, jax.P("data")))


grad_fn = ipu.pipelining_ops.value_and_grad(
    sharded_loss_fn, micro_batches=MICRO_BATCHES, schedule="one_f_one_b"
)


@ipu.compile(meshes=meshes, donate_argnums=(0, 1))
def step(params, opt_state, windows):
    loss, grads = grad_fn(params, windows)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


params, opt_state, losses = train(step, UPDATES)

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(plain_losses, linewidth=5, alpha=0.3, label="one device, jax.jit")
axes.plot(losses, label="four stages on eight devices")
axes.set(xlabel="update", ylabel="loss, nats", xlim=0)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
plt.show()

apart = abs(losses - plain_losses)
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")
print(f"largest difference of a loss: {apart[:3].max():.0e} in 3 updates, {apart.max():.0e} in all")

# %% [markdown]
# The first losses are equal to rounding. Sums are added up in another order here, and an optimizer
# amplifies that from update to update, as it does between any two machines.


# %%
def norm(tree):
    return sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(tree)) ** 0.5


difference = jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), params, plain_params)
print(f"relative difference of the parameters: {norm(difference) / norm(plain_params):.0e}")

# %% [markdown]
# ## Where everything is
#
# The bytes that each device holds between two updates: parameters, and the two averages that Adam
# keeps of each. Stage 0 has the embedding, too. The head, in stage 3, reads it, but it lives in the
# first stage that does: its value travels to stage 3, and the gradient back.


# %%
def bytes_by_device(tree):
    held = np.zeros(8)
    for leaf in jax.tree.leaves(tree):
        for shard in leaf.addressable_shards:
            held[shard.device.id] += shard.data.nbytes
    return held / 1024


# %%
figure, axes = plt.subplots(figsize=(7, 2.4))
below = np.zeros(8)
for name, tree in {"parameters": params, "Adam": opt_state}.items():
    axes.bar(range(8), bytes_by_device(tree), bottom=below, label=name)
    below += bytes_by_device(tree)
axes.set_xticks(range(8), [f"stage {i // 2}\ndevice {i}" for i in range(8)], fontsize=8)
axes.set(ylabel="KiB")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
plt.show()

whole = sum(leaf.nbytes for leaf in jax.tree.leaves((params, opt_state))) / 1024
print(f"all state: {whole:.0f} KiB; on the device that has most: {below.max():.0f} KiB")

# %% [markdown]
# JAX itself says on which devices the parameters of a block are.

# %%
for i in range(LAYERS):
    leaves = jax.tree.leaves(params["params"][f"block_{i}"])
    on = {device.id for leaf in leaves for device in leaf.devices()}
    print(f"block {i}: {len(leaves)} arrays, all on devices {sorted(on)}")

# %% [markdown]
# ## When everything runs
#
# The schedule is data, and can be drawn: a row for each stage, a column for each tick. Blue is a
# forward task, orange a backward task, with the number of its micro-batch. A stage begins the
# backward tasks as early as it can, so that no more than four micro-batches wait in it.

# %%
print(f"idle: {ipu.schedules.simulate(ipu.schedules.one_f_one_b(4, MICRO_BATCHES)).bubble:.0%}")
ipu.schedules.one_f_one_b(4, MICRO_BATCHES)

# %% [markdown]
# The report shows the same as a timeline, with the lengths that tasks would have on IPUs. Those are
# not the lengths of your devices, but how the stages compare, and who waits for whom, is much the
# same. It says that the last stage has most to do: the head multiplies with the whole alphabet.
# The program's own devices are on its first page.

# %%
report = step.lower(params, opt_state, next(batches(seed=1))).report()
print("\n".join(line for line in str(report).splitlines() if "mesh" in line))
work = report.breakdown["work"]
print("computing, in cycles:", *(f"stage {i}: {cycles:,}" for i, cycles in enumerate(work)))
report

# %% [markdown]
# [Pipelines for JAX users](../docs/pipelines_for_jax_users.md) goes on: tensor parallel stages,
# checkpoints, dropout keys, auxiliary values.
#
# ## Try
#
# 1. Leave the `with` statements out, and give `value_and_grad` the argument `stages=4`. Where does
#    it cut, and do the losses change?
# 2. Take `schedule="gpipe"`, and draw it. How many micro-batches wait in stage 0 now?
