# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A language model in a pipeline
#
# The notebooks so far split a model over IPUs, and then all but one of them waited. A pipeline
# gives them something to do meanwhile: the batch is cut into micro-batches, and while IPU 1 works
# on one of them IPU 0 has the next.
#
# Here it is a small transformer that learns to write English, character by character. It is cut
# into four stages, trained with gradient accumulation, evaluated by a second pipeline without a
# backward pass, and finally asked for a few lines. The text comes with every Python: the
# language's own reference, as `help()` has it.
#
# * **You learn** to write stages and train them as a pipeline, to see what waits in it, to trade
#   memory for arithmetic, and to share a table between two stages.
# * **It takes** twenty-five minutes to read, and a minute to run.
# * **It needs** the first two notebooks, an idea of transformers, and the extra `notebooks`.

# %%
import collections
import itertools
from pydoc_data.topics import topics

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline

# %% [markdown]
# The topics of the reference are put into one text, in some order. Of its characters the model gets
# those that are not rare.

# %%
names = sorted(topics)
np.random.default_rng(0).shuffle(names)
text = "\n".join(topics[name] for name in names)
counts = collections.Counter(text)
alphabet = sorted(char for char, count in counts.items() if count >= 20)
code_of = {char: code for code, char in enumerate(alphabet)}
codes = np.array([code_of[char] for char in text if char in code_of], np.int32)

print(f"{len(text)} characters, {len(alphabet)} different ones")
print(text[60_000:60_300])

# %% [markdown]
# How hard is it to guess one? The entropy of a character by itself is the mark to beat: it is the
# loss of a model that knows how frequent each character is, and nothing of what comes before.

# %%
share = np.bincount(codes) / len(codes)
unigram_entropy = float(-np.sum(share[share > 0] * np.log(share[share > 0])))
print(f"entropy of a character by itself: {unigram_entropy:.2f} nats")

# %% [markdown]
# ## Four stages
#
# First what the model is made of, in plain JAX: its parameters, and a block of a transformer.

# %%
WIDTH, HEADS, LENGTH = 64, 4, 64
VOCABULARY = len(alphabet)


def dense(key, rows, columns):
    return jax.random.normal(key, (rows, columns)) / rows**0.5


def initial_block(key):
    keys = jax.random.split(key, 4)
    return {
        "qkv": dense(keys[0], WIDTH, 3 * WIDTH),
        "out": dense(keys[1], WIDTH, WIDTH),
        "up": dense(keys[2], WIDTH, 4 * WIDTH),
        "down": dense(keys[3], 4 * WIDTH, WIDTH),
    }


def initial_parameters(seed=0):
    keys = jax.random.split(jax.random.key(seed), 6)
    return {
        "embedding": 0.1 * jax.random.normal(keys[0], (VOCABULARY, WIDTH)),
        "positions": 0.1 * jax.random.normal(keys[1], (LENGTH, WIDTH)),
        "blocks": [initial_block(key) for key in keys[2:5]],
        "head": dense(keys[5], WIDTH, VOCABULARY),
    }


print(sum(x.size for x in jax.tree.leaves(initial_parameters())), "parameters")


# %%
def normalized(x):
    x = x - x.mean(axis=-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)


def transformer_block(weights, x):
    batch, length, _ = x.shape
    qkv = (normalized(x) @ weights["qkv"]).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
    q, k, v = jnp.moveaxis(qkv, 2, 0)
    x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ weights["out"]
    return x + jax.nn.gelu(normalized(x) @ weights["up"]) @ weights["down"]


# %% [markdown]
# A stage is a function. It takes the parameters, all of them, then what the stage before it
# returned. It reads the parameters that it needs; that is what decides on which IPU each of them
# will live. The first stage gets its arguments from the infeed: windows of text, one character
# longer than the model looks at. It hands them on, because the last stage needs the targets.


# %%
def embed(parameters, windows):
    return parameters["embedding"][windows[:, :-1]] + parameters["positions"], windows


def first_block(parameters, x, windows):
    return transformer_block(parameters["blocks"][0], x), windows


def second_block(parameters, x, windows):
    return transformer_block(parameters["blocks"][1], x), windows


def stage_0(parameters, windows):
    return first_block(parameters, *embed(parameters, windows))


def third_block(parameters, x, windows):
    return transformer_block(parameters["blocks"][2], x), windows


def loss_of_logits(logits, windows):
    return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean()


def head(parameters, x, windows):
    return loss_of_logits(normalized(x) @ parameters["head"], windows)


stages = [stage_0, second_block, third_block, head]

# %% [markdown]
# The data are windows at random places. The last tenth of the text is kept for the evaluation.

# %%
BATCH = 8  # windows in a micro-batch
split = len(codes) * 9 // 10


def windows_from(part, seed):
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(part) - LENGTH, BATCH)
        yield part[starts[:, None] + np.arange(LENGTH + 1)]


# %% [markdown]
# The pipeline itself is one call. `optimizer_function` takes what the last stage returned and says
# what to minimise, and how. The gradients of eight micro-batches are accumulated before each
# update. The original's pipelines add them up; here they are averaged, so that a learning rate
# means the same for any number of micro-batches.
#
# There is one argument that the original had no need of. TensorFlow keeps variables in the graph,
# JAX does not, so the parameters go in as `variables`, and come back trained.

# %%
MICRO_BATCHES = 8


def minimise_loss(loss):
    return OptimizerFunctionOutput(optax.adam(4e-3), loss)


def training(updates, stages=stages, **more):
    """A compiled function that trains for so many updates, and the outfeed of its losses."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(windows_from(codes[:split], seed=1))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def train(parameters):
        return pipeline(
            computational_stages=stages,
            gradient_accumulation_count=MICRO_BATCHES,
            repeat_count=updates,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=minimise_loss,
            reduction_method="MEAN",
            variables=parameters,
            name="language_model",
            **more,
        )

    return ipu.compile(train), outfeed


# %% [markdown]
# Four stages ask for four IPUs.

# %%
config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()

UPDATES = 160
train, outfeed = training(UPDATES)
parameters = initial_parameters()

# %% [markdown]
# ## What it becomes
#
# The program has two loops: one over the updates, and in it one over the micro-batches. Of the
# inner one here are the tasks, a forward and a backward one for each stage, and what is copied
# between them. Nobody wrote the backward tasks. Each is on the IPU of its forward task.

# %%
lowered = train.lower(parameters)
program_text = lowered.as_text()


def lines_with(text, *starts):
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line.startswith(starts) and "host" not in line]


def show(lines):
    print("\n".join(line if len(line) < 96 else f"{line[:92]} ..." for line in lines))


show(lines_with(program_text, "repeat", "pipeline", "task", "copy", "stream"))

# %% [markdown]
# The text has each task once, however many micro-batches there are. When it runs for which of them
# is the *schedule*, which is data and can be drawn: a row for each IPU, a column for each tick.
# Blue is a forward task, orange a backward task, with the number of its micro-batch. This one is
# `Grouped`, the default. In tick 4 the last IPU begins to work in both directions, and in tick 7
# all of them do. With more micro-batches, that is how a pipeline spends most of its time.

# %%
schedule = ipu.schedules.grouped(4, MICRO_BATCHES)
for micro_batches in (MICRO_BATCHES, 64):
    simulated = ipu.schedules.simulate(ipu.schedules.grouped(4, micro_batches))
    print(f"idle: {simulated.bubble:.0%} with {micro_batches} micro-batches")
schedule

# %% [markdown]
# ## What waits, and what recomputation saves
#
# Stage 0 does the backward task of micro-batch 0 seven ticks after the forward one, and has begun
# six others meanwhile. What the backward task needs of the forward one has to wait that long, in
# a *fifo*. The program's text says what is in each, and how deep it is. For a whole transformer
# block that is a lot: what went into each product, the attention weights, and so on.


# %%
def fifo_bytes(program):
    """The bytes that wait between forward and backward tasks, for each stage."""
    waiting = {}
    for line in lines_with(program.as_text(), "fifo"):
        place, _, values = line.partition(", depth ")
        depth, _, values = values.partition(": ")
        stage = int(place.rsplit(" ", 1)[1])
        waiting[stage] = int(depth) * sum(map(size_of, values.split(", ")))
    return [waiting.get(stage, 0) for stage in range(4)]


def size_of(value):
    """`%16 float32[8,64]` -> 2048"""
    dtype, _, shape = value.split(" ", 1)[1].rstrip("]").partition("[")
    return np.dtype(dtype).itemsize * int(np.prod([int(n) for n in shape.split(",") if n]))


show(lines_with(program_text, "fifo"))
kept = fifo_bytes(lowered)

# %% [markdown]
# With `allow_recompute` a stage keeps its inputs only, and its backward task begins with doing the
# forward task again. That costs a third more arithmetic and saves nearly all of the fifos.

# %%
config.allow_recompute = True
config.configure_ipu_system()
recomputing = train.lower(parameters)
show(lines_with(recomputing.as_text(), "fifo"))
recomputed = fifo_bytes(recomputing)
for stage, (before, after) in enumerate(zip(kept, recomputed, strict=True)):
    print(f"stage {stage}: {before / 2**20:6.2f} MiB wait, {after / 2**20:5.2f} with recomputation")

config.allow_recompute = False
config.configure_ipu_system()

# %% [markdown]
# ## Training
#
# One call makes all updates. The outfeed has a loss for each micro-batch; the curve shows the mean
# of each update. Above the dashed line it is no better than counting characters.

# %%
parameters, state = train(parameters)
losses = outfeed.dequeue()[0].reshape(UPDATES, MICRO_BATCHES).mean(axis=1)
figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(losses)
axes.axhline(unigram_entropy, color="grey", linestyle="--")
axes.text(UPDATES, unigram_entropy, "counting characters", ha="right", va="bottom")
axes.set(xlabel="update", ylabel="loss, nats", xlim=0)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
print(f"loss {losses[:5].mean():.2f} -> {losses[-10:].mean():.2f} nats")

# %% [markdown]
# ## Evaluating
#
# A pipeline without an `optimizer_function` is for inference: forward tasks only, and nothing is
# kept for later. The same stages will do.

# %%
held_out = ipu.ipu_infeed_queue.IPUInfeedQueue(windows_from(codes[split:], seed=2))
evaluated = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


@ipu.compile
def evaluate(parameters):
    return pipeline(
        computational_stages=stages,
        gradient_accumulation_count=16,
        infeed_queue=held_out,
        outfeed_queue=evaluated,
        variables=parameters,
    )


evaluate(parameters)
print(f"loss on text that it has not seen: {evaluated.dequeue()[0].mean():.2f} nats")
ipu.schedules.grouped(4, 16, training=False)

# %% [markdown]
# ## Writing
#
# To write, a character has to be known before the next one can be guessed, so there is nothing to
# overlap and a pipeline is of no use. The stages are plain functions, though, and work in plain
# JAX as well.


# %%
@jax.jit
def write(parameters, start, key):
    def one_more(window, key):
        padded = jnp.concatenate([window, window[-1:]])[None]
        x, _ = third_block(parameters, *second_block(parameters, *stage_0(parameters, padded)))
        logits = normalized(x[0, -1]) @ parameters["head"]
        char = jax.random.categorical(key, logits / 0.6)
        return jnp.concatenate([window[1:], char[None].astype(window.dtype)]), char

    return jax.lax.scan(one_more, start, jax.random.split(key, 400))[1]


start = codes[split : split + LENGTH]
written = write(parameters, start, jax.random.key(3))
print("".join(alphabet[code] for code in [*start, *np.asarray(written)]))

# %% [markdown]
# It makes little sense, after a few seconds of reading. But it knows what words of this text look
# like, and how they are spaced.
#
# ## Tied embeddings
#
# Many language models use one table twice: to embed characters at the beginning, and, transposed,
# to score them at the end. In a pipeline these are the first and the last stage. A variable lives
# on one IPU, so the two must share one. Putting them on different ones is an error.


# %%
def tied_head(parameters, x, windows):
    return loss_of_logits(normalized(x) @ parameters["embedding"].T, windows)


tied_stages = [embed, first_block, second_block, tied_head]
tied_parameters = initial_parameters()
del tied_parameters["head"], tied_parameters["blocks"][2]

try:
    training(2, tied_stages)[0].lower(tied_parameters)
except ipu.errors.PipelineError as error:
    print(error)

# %% [markdown]
# The error says how to mend it: `device_mapping` puts the last stage on IPU 0 as well. Embedding
# and scoring are the two cheap stages here, so the IPU that has both is not even the busiest. The
# gradients of the two uses are added up before they go into the accumulator. That is easily done
# wrongly, so the next cell has it checked: `check_pipeline` takes the arguments of `pipeline`, runs
# one update both with and without the pipeline, and compares all numbers.

# %%
mapping = [0, 1, 2, 0]
found = ipu.pipelining_ops.check_pipeline(
    computational_stages=tied_stages,
    gradient_accumulation_count=MICRO_BATCHES,
    batch=list(itertools.islice(windows_from(codes[:split], seed=1), MICRO_BATCHES)),
    outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
    optimizer_function=minimise_loss,
    reduction_method="MEAN",
    device_mapping=mapping,
    variables=tied_parameters,
)
print(found)

# %% [markdown]
# And it learns.

# %%
tied_train, tied_outfeed = training(10, tied_stages, device_mapping=mapping)
tied_train(tied_parameters)
tied_losses = tied_outfeed.dequeue()[0].reshape(10, MICRO_BATCHES).mean(axis=1)
print("losses:", np.round(tied_losses, 2))

# %% [markdown]
# Three IPUs are in use, so the schedule has three rows. IPU 0 runs both directions of two stages.

# %%
ipu.schedules.grouped(4, MICRO_BATCHES, ipus=mapping)

# %% [markdown]
# ## Try
#
# 1. Train with `pipeline_schedule=ipu.schedules.one_f_one_b` in `training`. Which fifos are shorter
#    now, and do the losses change?
# 2. Put the third block's stage and the head into one, so that there are three stages. What does
#    the error ask for, and what says `ipu.schedules.simulate` of the time that IPUs are idle then?
