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
# `W3` is the half that fills a gap.
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
# that cannot work; printing draws it, with a row for each IPU and a column for each tick.

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

assert runs["sequential"].bubble > runs["gpipe"].bubble > runs["zero-bubble"].bubble
assert runs["gpipe"].in_flight == (8, 8, 8, 8)
assert runs["1f1b"].in_flight == (4, 3, 2, 1)
assert runs["in pairs"].in_flight == (2, 2, 2, 2)

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
figure, axes = plt.subplots(figsize=(7, 3))
for name, (_, function, more) in every.items():
    bubbles = []
    for count in (8, 16, 32, 64):
        made = schedules.build(
            function,
            stages=4,
            micro_batches=count,
            training=True,
            ipus=more.get("device_mapping"),
        )
        bubbles.append(schedules.simulate(made).bubble)
    axes.plot((8, 16, 32, 64), bubbles, marker="o", label=name)
axes.set(xlabel="micro-batches", ylabel="bubble", ylim=(0, 1))
axes.spines[["top", "right"]].set_visible(False)
axes.legend(ncols=2, fontsize="small", frameon=False)

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

for name, own in losses.items():
    print(f"{name:<17}", " ".join(f"{loss:.4f}" for loss in own[::3]), f"{own[-1]:.6f}")

# %%
for name in every:
    np.testing.assert_allclose(losses[name], losses["sequential"], rtol=1e-4)
    for mine, other in zip(
        jax.tree.leaves(trained[name]), jax.tree.leaves(trained["sequential"]), strict=True
    ):
        np.testing.assert_allclose(mine, other, atol=1e-4)
assert losses["grouped"][-1] < losses["grouped"][0] / 2
print("all schedules give the same losses and the same parameters")

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
else:
    raise AssertionError("a schedule that cannot work was accepted")

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
else:
    raise AssertionError("six micro-batches went through a grouped pipeline")

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
found.raise_if_different()

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
assert found.ok

# %% [markdown]
# And this is what the classic mistake looks like. The pipeline adds gradients up, as the original
# does unless told otherwise; the batch's loss is a mean.

# %%
settings["reduction_method"] = "SUM"
found = check_pipeline(**settings, reference=before_it_was_a_pipeline, whole_batch=True)
print(found)
assert not found.ok
assert found.findings[0].startswith("all gradients are 8 times the reference's")
