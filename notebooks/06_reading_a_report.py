# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reading a report
#
# Somebody has cut a model over four IPUs, and asks: does it fit, why is it slow, and what should I
# change? This notebook answers as one would at a colleague's desk, with the report open. Each
# answer is followed by the change, and by a look at whether the change did what was promised.
#
# Every number here is modelled: nothing has to run to get it. At the end the training runs for
# real, to see that the changes have not changed what is learned.
#
# * **You learn** to read a report, to tell exchange, bubble and imbalance apart, and to change a
#   program so that it fits and is faster.
# * **It takes** twenty-five minutes to read, and a minute to run.
# * **It needs** the two notebooks before this one, and the extra `notebooks`.

# %%
import functools
import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import ipujax as ipu
from ipujax.demo.digits import load_digits
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline

# %% [markdown]
# ## The patient
#
# A residual network of twelve layers that reads handwritten digits, trained with Adam. So that a
# small model is a tight fit, the IPUs are small, too: 30 tiles each instead of 1472. All that is
# said below holds for large ones.

# %%
config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.ipu_model.tiles_per_ipu = 30
config.configure_ipu_system()

WIDTH, LAYERS, BATCH, CLASSES = 512, 12, 16, 10
images, labels, _, _ = load_digits()
batches = [
    (images[start : start + BATCH], labels[start : start + BATCH].astype(np.int32))
    for start in range(0, 64 * BATCH, BATCH)
]


def parameters():
    keys = iter(jax.random.split(jax.random.key(0), LAYERS + 2))

    def dense(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) / (2 * rows**0.5)

    return {
        "into": dense(64, WIDTH),
        "layers": [dense(WIDTH, WIDTH) for _ in range(LAYERS)],
        "out": dense(WIDTH, CLASSES),
    }


# %% [markdown]
# A stage is one of three functions, by its place in the pipeline. `cut` says how many layers each
# stage has: `(2, 3, 3, 4)` is four stages.


# %%
def layers(weights, hidden):
    for matrix in weights:
        hidden = hidden + jax.nn.gelu(hidden @ matrix.astype(hidden.dtype))
    return hidden


def stage_of(number, cut, dtype):
    end = sum(cut[: number + 1])
    own = slice(end - cut[number], end)

    def first(weights, images, labels):
        hidden = (images.reshape(BATCH, -1) @ weights["into"]).astype(dtype)
        return layers(weights["layers"][own], hidden), labels

    def middle(weights, hidden, labels):
        return layers(weights["layers"][own], hidden), labels

    def last(weights, hidden, labels):
        hidden = layers(weights["layers"][own], hidden).astype(jnp.float32)
        logits = hidden @ weights["out"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return first if number == 0 else last if number == len(cut) - 1 else middle


# %% [markdown]
# What we shall change are the arguments of `training`: how many layers each stage has, how many
# micro-batches there are to an update, and in which numbers the layers compute.


# %%
def training(cut, micro_batches, dtype=jnp.float32, updates=1):
    """The compiled function, its arguments, and the queue of its losses."""
    elements = ipu.ipu_infeed_queue.IPUInfeedQueue(functools.partial(itertools.cycle, batches))
    losses = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @ipu.compile
    def train(weights):
        return pipeline(
            [stage_of(number, cut, dtype) for number in range(len(cut))],
            micro_batches,
            repeat_count=updates,
            infeed_queue=elements,
            outfeed_queue=losses,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.adam(1e-3), loss),
            offload_weight_update_variables=False,
            variables=weights,
            reduction_method="MEAN",
        )

    return train, parameters(), losses


def report_of(*arguments, **more):
    train, weights, _ = training(*arguments, **more)
    return train.lower(weights).report()


# %% [markdown]
# This is how we found it. The stages have 2, 3, 3 and 4 layers; an update takes 8 micro-batches.

# %%
found = report_of(cut=(2, 3, 3, 4), micro_batches=8)
print(str(found).partition("\nOperations")[0])

# %% [markdown]
# ## Does it fit?
#
# No. The second line says so, and the line after it where: a tile of IPU 3 needs more than it has.
# A program is as large as its fullest tile, so the other IPUs being half empty does not help.
#
# What fills IPU 3? `liveness` knows what is alive at each step. We take the step that needs most,
# and add up by category.

# %%
ipu_3 = found.liveness[3]
print(f"at step {ipu_3.worst}, `{ipu_3.names[ipu_3.worst]}`:")
for category, bytes_ in found.memory.ipu_categories.items():
    if bytes_[3]:
        print(f"  {category:<14} {bytes_[3] / 1e6:6.2f} MB")

for tensor in ipu_3.alive_at(ipu_3.worst)[:6]:
    print(f"{tensor.name:<20} {tensor.category:<12} {tensor.operation}")

# %% [markdown]
# It is full of variables: for each layer a matrix of a megabyte, the sum of its gradients, and the
# two moments that Adam keeps. That is four megabytes a layer, and this IPU has four layers. Nothing
# is wrong with any operation; there is one layer too many here.
#
# ## Why is it slow?
#
# Three things can make a pipeline slow, and they look alike from outside: the IPUs wait because
# there is nothing for them to do yet (the bubble), they wait because another stage takes longer
# (imbalance), or they work, but on moving data (exchange). The report tells them apart.

# %%
for cost in found.costs:
    print(f"{cost.share:5.1%}  {cost.title}\n       {cost.remedy}")

# %% [markdown]
# Half of the grid of IPUs and ticks is empty: with eight micro-batches, a grouped pipeline of four
# stages fills and drains all the time. And the stages differ, which the cycles of a task show.

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
for place, phase, name in ((-0.2, "fwd", "forward"), (0.2, "bwd", "backward")):
    heights = [found.pipeline.stage_cycles[stage, phase] / 1000 for stage in range(4)]
    axes.bar(np.arange(4) + place, heights, 0.4, label=name)
axes.set(xlabel="stage", ylabel="thousands of cycles a task", xticks=range(4))
axes.spines[["top", "right"]].set_visible(False)
axes.legend(loc="upper left", frameon=False)
plt.show()

# %% [markdown]
# And this is what the time of each IPU goes to.

# %%
print(f"{'cause':<10}", *(f" IPU {number}" for number in range(4)))
for cause, cycles in found.breakdown.items():
    print(f"{cause:<10}", *(f"{share:6.1%}" for share in cycles / found.cycles))

# %% [markdown]
# Each column adds up to a call. So it is not the exchange, which takes a small share on every IPU.
# It is the imbalance first: stage 3 takes twice as long as stage 0, and everybody waits for it in
# every tick. Then it is the bubble, which is less than a fifth of the time and not half: the ticks
# in which the pipeline fills, with forward tasks alone, are short ones.
#
# ## First change: move a layer
#
# One layer from the last stage to the first. It is the same remedy for memory and for balance,
# because it is the same illness.

# %%
balanced = report_of(cut=(3, 3, 3, 3), micro_batches=8)
fullest = balanced.memory.tile_peak_bytes.max(axis=1) / balanced.memory.limit
print("fullest tiles:", *(f"{share:.0%}" for share in fullest))
print(f"cycles: {found.cycles:,} -> {balanced.cycles:,}")
waits = [int(each.breakdown["imbalance"].sum()) for each in (found, balanced)]
print(f"imbalance of all IPUs: {waits[0]:,} -> {waits[1]:,} cycles")
balanced.memory

# %% [markdown]
# It fits. The time is better, and the bubble is what it was: it depends on the number of
# micro-batches and not on the stages.
#
# ## Second change: more micro-batches
#
# A grouped pipeline of four stages is idle for eight ticks in an update, however many micro-batches
# there are. With 8 of them that is half of the grid; with 32 it is a fifth. What it costs is a
# larger batch for each update, which is a question of learning and not of speed.

# %%
longer = report_of(cut=(3, 3, 3, 3), micro_batches=32)
empty = [each.pipeline.bubble_fraction for each in (balanced, longer)]
print(f"empty places of the grid: {empty[0]:.0%} -> {empty[1]:.0%}")
print(f"elements a second: {balanced.throughput:,.0f} -> {longer.throughput:,.0f}")

# %% [markdown]
# ## Third change: half precision
#
# What is left is mostly work. The report names the lines that it goes to, and how well they use the
# chip.

# %%
for cost in longer.costs:
    print(f"{cost.share:5.1%}  {cost.title}\n       {cost.remedy}")

# %%
for operation in longer.operations[:6]:
    used = "" if operation.flop_utilisation is None else f"{operation.flop_utilisation:.1%} of peak"
    name = f"{operation.label}, {operation.direction}"
    print(f"{operation.cycles:12,.0f} cycles on IPU {operation.ipu}  {name}  {used}")

# %% [markdown]
# The lines are those of the layers, as they should be, and the units of an IPU multiply float16
# twice as fast as float32. Parameters and optimizer stay in float32, and the layers compute in
# float16.

# %%
half = report_of(cut=(3, 3, 3, 3), micro_batches=32, dtype=jnp.float16)
print(f"elements a second: {longer.throughput:,.0f} -> {half.throughput:,.0f}")
fullest = [report.memory.tile_peak_bytes.max() for report in (longer, half)]
print(f"fullest tile: {fullest[0]:,} -> {fullest[1]:,}")
print("it fits:", half.memory.fits)

# %% [markdown]
# A third faster, not twice as fast: adding up gradients stays what it was, and each use of a
# matrix now makes a copy of it in float16, which takes time, and room beside the matrix. It still
# fits. Over all three changes the throughput has doubled, and each step of the way was told before
# it was taken.

# %%
print(f"elements a second: {found.throughput:,.0f} -> {half.throughput:,.0f}")

# %% [markdown]
# ## The same, to look at
#
# All of this is easier to see than to print. At the end of a cell a report shows itself, with views
# of memory by tile, of what is alive when, of the program, its operations and its timeline. They
# are linked: click on an operation, and the others show where it is.

# %%
half

# %% [markdown]
# `to_html` writes the same page to a file that needs nothing else, `to_json` one that programs can
# read, and `to_perfetto` a trace for ui.perfetto.dev. On the command line, `ipujax report --diff`
# compares two of them.

# %%
folder = Path(tempfile.mkdtemp())
for name, report in {"before": found, "after": half}.items():
    report.to_json(folder / f"{name}.json")
    report.to_html(folder / f"{name}.html")
for path in sorted(folder.iterdir()):
    print(f"{path.name:<12} {path.stat().st_size / 1e3:7.1f} kB")

# %%
command = [sys.executable, "-m", "ipujax", "report", "--diff", "before.json", "after.json"]
print(subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)

# %% [markdown]
# ## And it still learns
#
# Now it runs: six updates before and after, which see the same batches if each update has as many.
# While it runs, `host_trace` notes what the host does. Beside the modelled call this shows whether
# the IPUs would wait for the host.

# %%
losses = {}
for name, cut, dtype in (
    ("before", (2, 3, 3, 4), jnp.float32),
    ("after", (3, 3, 3, 3), jnp.float16),
):
    train, weights, queue = training(cut, 32, dtype, updates=6)
    with ipu.host_trace.record() as trace:
        executable = train.lower(weights).compile()
        executable(weights)
        losses[name] = queue.dequeue()[0].reshape(6, -1).mean(axis=1)
    print(f"{name:<7}", " ".join(f"{loss:.3f}" for loss in losses[name]))

# %% [markdown]
# What the host did, the longest first. Most of it is work that real IPUs would do instead.

# %%
seen = executable.report(host=trace)
for span in sorted(seen.host.spans, key=lambda span: -span.seconds)[:6]:
    print(f"{span.kind:<8} {span.seconds * 1e3:8.1f} ms  {span.name}")
print(f"modelled on IPUs: {seen.seconds * 1e3:.1f} ms for a call of six updates")

# %% [markdown]
# ## Try
#
# 1. The report offered to keep the optimizer's state in streaming memory. Take it at its word:
#    change `offload_weight_update_variables`, and compare the cycles with what it promised.
# 2. `ipu.compare(train, [weights])` models a function on every kind of chip. Compare what
#    `training((3, 3, 3, 3), 32)` gives; the result draws itself.
