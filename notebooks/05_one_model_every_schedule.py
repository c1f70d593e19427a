# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One model, every schedule
#
# A schedule says which IPU works on which micro-batch when. It decides how long the IPUs wait and
# how much they have to remember, and it does not decide any number: the same tasks run in another
# order. This notebook trains one small model under all schedules there are, and under one of its
# own, and holds them to that promise.
#
# * **You learn** to choose a schedule, to write one, and to check a pipeline against the same step
#   without one.
# * **It takes** twenty minutes to read, and a minute to run.
# * **It needs** the notebook before this one, and the extra `notebooks`.

# %%
import functools
import itertools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from IPython.display import display

import ipujax as ipu
from ipujax import schedules
from ipujax.demo.digits import load_digits
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline

config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()

# %% [markdown]
# ## The model
#
# A classifier of handwritten digits with a residual layer in each of its four stages. What it is
# matters little; that there are four matters a lot.

# %%
images, labels, _, _ = load_digits()
BATCH, MICRO_BATCHES, UPDATES = 16, 8, 10
WIDTH = 48


def initial_parameters():
    keys = jax.random.split(jax.random.key(0), 6)

    def dense(key, rows, columns):
        return jax.random.normal(key, (rows, columns)) / rows**0.5

    return {
        "into": dense(keys[0], 64, WIDTH),
        "layers": [dense(key, WIDTH, WIDTH) for key in keys[1:5]],
        "out": dense(keys[5], WIDTH, 10),
    }


# %% [markdown]
# The first stage also reads the pixels, and the last one computes the loss.


# %%
def layer(number):
    def stage(parameters, hidden, labels):
        return hidden + jnp.tanh(hidden @ parameters["layers"][number]), labels

    return stage


def first_stage(parameters, images, labels):
    hidden = images.reshape(BATCH, -1) @ parameters["into"]
    return layer(0)(parameters, hidden, labels)


def last_stage(parameters, hidden, labels):
    hidden, _ = layer(3)(parameters, hidden, labels)
    logits = hidden @ parameters["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


stages = [first_stage, layer(1), layer(2), last_stage]

# %% [markdown]
# All pipelines below have these arguments, but for one or two.

# %%
elements = [
    (images[start : start + BATCH], labels[start : start + BATCH].astype(np.int32))
    for start in range(0, BATCH * MICRO_BATCHES * 10, BATCH)
]


def minimise_loss(loss):
    return OptimizerFunctionOutput(optax.adam(3e-3), loss)


def arguments(**more):
    """The arguments of a pipeline, with queues of its own."""
    data = functools.partial(itertools.cycle, elements)
    return {
        "computational_stages": stages,
        "gradient_accumulation_count": MICRO_BATCHES,
        "repeat_count": UPDATES,
        "infeed_queue": ipu.ipu_infeed_queue.IPUInfeedQueue(data),
        "outfeed_queue": ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
        "optimizer_function": minimise_loss,
        "reduction_method": "MEAN",
        **more,
    }


# %% [markdown]
# ## The schedules
#
# Three are the original's. `Grouped` runs a forward and a backward task on every IPU in every tick.
# `Interleaved` takes turns. `Sequential` is no pipeline at all: one stage at a time, for debugging.
#
# The others come from elsewhere. GPipe does all forward tasks, then all backward tasks. 1F1B starts
# with backward tasks as soon as there are any, so that fewer micro-batches are under way at once.
# Its interleaved form gives every IPU several stages; a model of four stages then needs two IPUs
# only. Zero-bubble cuts backward tasks in two, since nobody waits for the gradients of weights:
# the second half, pink, fills gaps.
#
# And one is ours. A schedule is a function of the numbers of stages and micro-batches which gives,
# for each IPU, its tasks in order; when each of them can run follows from what it needs. This one
# lets micro-batches through two by two.


# %%
def in_pairs(stages, micro_batches):
    """Two micro-batches forward, the same two backward, and so on."""
    order = []
    for first in range(0, micro_batches, 2):
        order += [("F", first), ("F", first + 1), ("B", first), ("B", first + 1)]
    return [[(stage, *task) for task in order] for stage in range(stages)]


two_ipus = {"device_mapping": [0, 1, 0, 1]}
every = {
    "grouped": (PipelineSchedule.Grouped, schedules.grouped, {}),
    "interleaved": (PipelineSchedule.Interleaved, schedules.interleaved, {}),
    "sequential": (PipelineSchedule.Sequential, schedules.sequential, {}),
    "gpipe": (schedules.gpipe, schedules.gpipe, {}),
    "1f1b": (schedules.one_f_one_b, schedules.one_f_one_b, {}),
    "interleaved 1f1b": (
        schedules.interleaved_one_f_one_b,
        schedules.interleaved_one_f_one_b,
        two_ipus,
    ),
    "zero-bubble": (schedules.zero_bubble, schedules.zero_bubble, {}),
    "in pairs": (in_pairs, in_pairs, {}),
}

# %% [markdown]
# Any of them can be looked at before anything is run. `build` makes a schedule, and refuses one
# that cannot work; a notebook draws it, with a row for each IPU and a column for each tick.

# %%
built = {
    name: schedules.build(
        function,
        stages=len(stages),
        micro_batches=MICRO_BATCHES,
        training=True,
        ipus=more.get("device_mapping"),
    )
    for name, (_, function, more) in every.items()
}
for schedule in built.values():
    display(schedule)

# %% [markdown]
# `simulate` counts. The bubble is the idle share of the grid. What is in flight, for each stage, is
# how many micro-batches it has begun and not finished, and so how many sets of activations it must
# keep. The makespan is the time from first to last, in tasks, if each starts as soon as it can and
# all take equally long.

# %%
print(f"{'schedule':<17} {'IPUs':>4} {'ticks':>5} {'bubble':>6} {'makespan':>8}  in flight")
runs = {name: schedules.simulate(schedule) for name, schedule in built.items()}
for name, run in runs.items():
    ipus = len(set(built[name].ipus))
    print(
        f"{name:<17} {ipus:>4} {run.ticks:>5} {run.bubble:>6.0%} {run.makespan:>8.0f}  "
        f"{run.in_flight}"
    )

# %% [markdown]
# GPipe and 1F1B are equally fast, and 1F1B needs half the memory: that is its whole point. Our own
# schedule needs even less, and pays with a pipeline that is drained four times. Grouped has the
# fewest ticks, each of which is longer, as it holds a task of either direction. Two makespans look
# longer than they are: interleaved 1F1B has two IPUs and not four, and zero-bubble has half tasks
# that count as whole ones. Compare their bubbles instead.
#
# With more micro-batches the bubbles shrink, but for two schedules. Sequential has nothing to fill
# them with, and ours empties the pipeline after each pair.

# %%
COUNTS = (8, 16, 32, 64)


def bubbles_of(function, ipus):
    made = (
        schedules.build(function, stages=4, micro_batches=count, training=True, ipus=ipus)
        for count in COUNTS
    )
    return [schedules.simulate(schedule).bubble for schedule in made]


figure, axes = plt.subplots(figsize=(7, 3))
for name, (_, function, more) in every.items():
    bubbles = bubbles_of(function, more.get("device_mapping"))
    axes.plot(COUNTS, bubbles, marker="o", label=name)
axes.set(xlabel="micro-batches", ylabel="bubble", ylim=(0, 1), xticks=COUNTS)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
plt.show()

# %% [markdown]
# ## The same numbers
#
# Now all of them train. `pipeline_schedule` takes a `PipelineSchedule`, or any function as above.
# The engine `replay` runs the tasks one by one as the schedule has them; `fused`, which `auto`
# prefers on a single device, makes one computation of them all and has no use for the order.
#
# The device gets as many IPUs as the schedule uses. On more, the model would be replicated, and
# each replica would take elements of its own.

# %%
losses, trained = {}, {}
for name, (given, _, more) in every.items():
    config.auto_select_ipus = len(set(built[name].ipus))
    config.configure_ipu_system()
    settings = arguments(pipeline_schedule=given, **more)

    def train(parameters, settings=settings):
        return pipeline(**settings, variables=parameters)

    trained[name], _ = ipu.compile(train, engine="replay")(initial_parameters())
    losses[name] = settings["outfeed_queue"].dequeue()[0].reshape(UPDATES, -1).mean(axis=1)

# %% [markdown]
# All schedules give the same losses and the same parameters, to rounding.


# %%
def furthest(mine, other):
    pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True)
    return max(np.abs(np.subtract(*pair)).max() for pair in pairs)


for name, own in losses.items():
    apart = furthest(trained[name], trained["sequential"])
    some = " ".join(f"{loss:.4f}" for loss in own[::3])
    print(f"{name:<17} losses {some}, parameters within {apart:.0e} of sequential")

config.auto_select_ipus = 4
config.configure_ipu_system()

# %% [markdown]
# ## A schedule that cannot work
#
# Somebody who writes schedules writes wrong ones. Below, IPU 0 insists on finishing micro-batch 0
# before it begins with micro-batch 1, and the others want micro-batch 1 before they go back with
# micro-batch 0. Each waits for its neighbour. On a machine this hangs; here it is an error before
# anything has run, and it shows who waits, and for what.


# %%
def impatient(stages, micro_batches):
    orders = in_pairs(stages, micro_batches)
    orders[0] = [(0, phase, number) for number in range(micro_batches) for phase in "FB"]
    return orders


settings = arguments(pipeline_schedule=impatient)
try:
    ipu.compile(lambda parameters: pipeline(**settings, variables=parameters)).lower(
        initial_parameters()
    )
except schedules.ScheduleError as error:
    print(error)

# %% [markdown]
# Limits that belong to a schedule are told in the same way. Grouped has a rhythm, and wants the
# number of micro-batches to fit.

# %%
settings = arguments(gradient_accumulation_count=6)
try:
    ipu.compile(lambda parameters: pipeline(**settings, variables=parameters)).lower(
        initial_parameters()
    )
except schedules.ScheduleError as error:
    print(error)

# %% [markdown]
# ## Against the unpipelined step
#
# That all schedules agree does not yet mean that they are right: all could be wrong by the same
# factor. It is the classic mistake in pipelines, a gradient that is summed where it should have
# been averaged, and it hides well, because Adam does not mind and the loss goes down anyway.
#
# `check_pipeline` looks for that. It takes what `pipeline` takes, runs one update with the pipeline
# and one without, and compares the losses, each gradient, and what the optimizer made of them. It
# checks several schedules at once, and uses up nothing of the infeed.

# %%
settings = arguments(variables=initial_parameters())
check_pipeline = ipu.pipelining_ops.check_pipeline
found = check_pipeline(**settings, schedules=[schedules.zero_bubble, in_pairs])
print(found)

# %% [markdown]
# What there is to compare with may also be a function of yours, for example the model as it was
# before it became a pipeline. That one took the whole batch at once. `whole_batch` gives it what
# all micro-batches have, in one piece.


# %%
def before_it_was_a_pipeline(parameters, images, labels):
    hidden = images.reshape(len(images), -1) @ parameters["into"]
    for weights in parameters["layers"]:
        hidden = hidden + jnp.tanh(hidden @ weights)
    logits = hidden @ parameters["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


found = check_pipeline(**settings, reference=before_it_was_a_pipeline, whole_batch=True)
print(found)

# %% [markdown]
# And this is what the classic mistake looks like. The pipeline adds gradients up, as the original
# does unless told otherwise; the batch's loss is a mean.

# %%
settings["reduction_method"] = "SUM"
found = check_pipeline(**settings, reference=before_it_was_a_pipeline, whole_batch=True)
print(found)

# %% [markdown]
# ## Try
#
# 1. Write `in_fours`, which lets micro-batches through four by four. Where is its bubble between
#    those of `in_pairs` and GPipe, and what is in flight?
# 2. Give `in_pairs` an odd number of micro-batches. What does the error say, and how would you mend
#    the schedule?
