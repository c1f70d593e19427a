# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Where to cut a model
#
# A pipeline is as fast as its slowest stage, and an IPU holds what its stage needs, or the model
# does not run. Where to cut, by which schedule to run, and whether to compute activations again:
# `ipu.plan` searches all of that, and says how far any plan could be ahead of its choice.
#
# * **You learn** to plan a model that does not exist yet, to read a plan, and to plan by a clock.
# * **It takes** fifteen minutes to read, and less than a minute to run.
# * **It needs** [one model, every schedule](05_one_model_every_schedule.ipynb), and the extra
#   `notebooks`.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ipujax as ipu

# %% [markdown]
# ## BERT-Large, in shapes
#
# The loss of BERT-Large's first phase: 24 layers of width 1024, sequences of 128 words, float16.
# Nothing of it marks a stage.

# %%
WIDTH, LAYERS, HEADS, WORDS, LENGTH = 1024, 24, 16, 30_528, 128


def normalized(x):
    x = x.astype("float32")
    x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return x.astype("float16")


def attention(x, layer, heads):
    def split(y):
        return y.reshape(*y.shape[:-1], heads, -1).swapaxes(1, 2)

    q, k, v = map(split, jnp.split(x @ layer["qkv"], 3, -1))
    scores = q @ k.swapaxes(2, 3) / q.shape[-1] ** 0.5
    mixed = jax.nn.softmax(scores) @ v
    return mixed.swapaxes(1, 2).reshape(x.shape) @ layer["out"]


def bert_loss(parameters, batch):
    x = normalized(parameters["words"][batch["tokens"]] + parameters["places"])
    for layer in parameters["layers"]:
        x = normalized(x + attention(x, layer, HEADS))
        x = normalized(x + jax.nn.gelu(x @ layer["up"]) @ layer["down"])
    scores = (x @ parameters["head"]).astype("float32")
    likely = jax.nn.log_softmax(scores)
    return -jnp.take_along_axis(likely, batch["targets"][..., None], -1).mean()


# %% [markdown]
# A plan needs shapes, and no values. An update is of 128 sequences; a micro-batch has two of them.


# %%
def struct(*sizes, dtype="float16"):
    return jax.ShapeDtypeStruct(sizes, dtype)


layer = {
    "qkv": struct(WIDTH, 3 * WIDTH),
    "out": struct(WIDTH, WIDTH),
    "up": struct(WIDTH, 4 * WIDTH),
    "down": struct(4 * WIDTH, WIDTH),
}
parameters = {
    "words": struct(WORDS, WIDTH),
    "places": struct(LENGTH, WIDTH),
    "layers": [layer] * LAYERS,
    "head": struct(WIDTH, WORDS),
}
tokens = struct(128, LENGTH, dtype="int32")
batch = {"tokens": tokens, "targets": tokens}

segments = ipu.planning.segments(bert_loss, parameters, batch, micro_batches=64)
print(len(segments), "segments; between two of them pass at least",
      f"{min(s.bytes_after for s in segments[:-1]):,.0f} bytes of a micro-batch")  # fmt: skip

# %% [markdown]
# ## Over four, eight and sixteen IPUs
#
# The machine model gives the cycles of each segment, forward and backward, and equal layers are
# asked once. Schedules with one stage on an IPU are compared, with recomputation and without.

# %%
SCHEDULES = ("grouped", "interleaved", "gpipe", "one_f_one_b", "zero_bubble")
plans = {}
for ipus in (4, 8, 16):
    plan = plans[ipus] = ipu.plan(
        bert_loss, parameters, batch, ipus=ipus, micro_batches=64, schedules=SCHEDULES,
        budget_seconds=4.0,
    )  # fmt: skip
    used = len(plan.peak_bytes)
    print(f"{ipus:2} IPUs: {plan.schedule} of {len(plan.stages)} stages,",
          f"recomputation: {plan.recompute}, fits: {plan.fits}, bubble {plan.bubble:.0%},",
          f"at most {plan.gap:.0%} above the bound")  # fmt: skip

# %% [markdown]
# A plan draws itself: a bar for each stage, what it needs, the lines at which it begins and ends,
# and why the alternatives lost.

# %%
plans[8]

# %% [markdown]
# Eight IPUs are more than twice as fast as four, which have no memory for `zero_bubble` without
# recomputation. On sixteen the bubble has grown with the stages, and the head, one product of
# 30 528 columns, is in one stage as a whole.

# %%
speed = {ipus: plans[4].seconds / plan.seconds for ipus, plan in plans.items()}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
left.bar([str(ipus) for ipus in speed], speed.values())
left.set(xlabel="IPUs", ylabel="times as fast as four")
for ipus, plan in plans.items():
    shares = np.array([sum(stage.seconds) for stage in plan.stages])
    right.plot(np.linspace(0, 1, len(shares)), shares / shares.max(), "o-", label=f"{ipus} IPUs")
right.set(xlabel="place in the model", ylabel="length of a stage", ylim=(0, 1.05))
right.legend()
plt.show()
print("times as fast as on four IPUs:", {ipus: round(times, 1) for ipus, times in speed.items()})

# %% [markdown]
# ## Less memory
#
# Memory is a bound like any other. With half the bytes on each IPU the plan for eight looks
# otherwise, and with far too little it is an error that has the plan which nearly fits.

# %%
full = max(plans[8].peak_bytes)
options = {"ipus": 8, "micro_batches": 64, "schedules": SCHEDULES, "budget_seconds": 4.0}
small = ipu.plan(bert_loss, parameters, batch, memory=0.6 * full, **options)
print("the fullest IPU holds", f"{max(small.peak_bytes) / full:.0%} of before;",
      f"{small.schedule}, recomputation: {small.recompute},",
      f"{small.seconds / plans[8].seconds:.2f} x the time")  # fmt: skip
try:
    ipu.plan(bert_loss, parameters, batch, memory=1e6, **options)
except ipu.errors.PlanError as error:
    print("PlanError:", error.what.partition(":")[0], "- the nearest has",
          len(error.nearest.stages), "stages")  # fmt: skip

# %% [markdown]
# ## A GPT by the clock
#
# `costs="measured"` runs each distinct segment on JAX's first device, and takes its work space from
# XLA: the plan is then one for this machine. A GPT that is small, and uneven: its head is wide.

# %%
GPT = {"words": 512, "width": 64, "layers": 4, "length": 32}
keys = iter(jax.random.split(jax.random.key(0), 32))


def matrix(rows, columns):
    return jax.random.normal(next(keys), (rows, columns)) / rows**0.5


width = GPT["width"]
weights = {
    "words": matrix(GPT["words"], width),
    "layers": [
        {"qkv": matrix(width, 3 * width), "out": matrix(width, width)} for _ in range(GPT["layers"])
    ],
    "head": matrix(width, GPT["words"]),
}

# %%


def gpt_loss(weights, tokens):
    x = weights["words"][tokens]
    for layer in weights["layers"]:
        x = jnp.tanh(x + attention(x, layer, 4))
    likely = jax.nn.log_softmax(x @ weights["head"])
    return -jnp.take_along_axis(likely, tokens[..., None], -1).mean()


text = jax.random.randint(jax.random.key(1), (32, GPT["length"]), 0, GPT["words"])
measured = ipu.plan(
    gpt_loss, weights, text, ipus=2, micro_batches=8, costs="measured", schedules="one_f_one_b",
    recompute=False,
)  # fmt: skip
print(measured.schedule, "of", measured.micro_batches, "micro-batches; its cut is proven:",
      measured.proven)  # fmt: skip

# %% [markdown]
# The plan is the argument of `value_and_grad`. It changes no number.

# %%
planned = ipu.pipelining_ops.value_and_grad(gpt_loss, **measured.arguments)
loss, gradients = ipu.compile(planned)(weights, text)
own_loss, own_gradients = jax.value_and_grad(gpt_loss)(weights, text)
largest = max(
    float(abs(ours - theirs).max())
    for ours, theirs in zip(jax.tree.leaves(gradients), jax.tree.leaves(own_gradients), strict=True)
)
print("losses differ by less than 1e-5:", abs(float(loss - own_loss)) < 1e-5)
print("gradients differ by less than 1e-4:", largest < 1e-4)

# %% [markdown]
# A plan is for one function with its shapes. Another batch is refused, before anything runs.

# %%
try:
    planned(weights, text[:16])
except ipu.errors.PlanError as error:
    print(error.what)

# %% [markdown]
# ## Try
#
# 1. Tie the head to the embedding (`parameters["words"].T`). Where does the plan cut now?
# 2. Offer several numbers of micro-batches, as `micro_batches=(16, 64)`: which is faster, and why?
