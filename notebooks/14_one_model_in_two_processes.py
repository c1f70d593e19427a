# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One model in two processes
#
# A program outgrows a process: its data comes too slowly for one, or its IPUs are attached to two
# machines. PopRun started such a program several times, and gave each instance its share.
# `ipurun` does so here. This notebook writes a script once and runs it three times: as one
# process, as two that have a replica each, and as two that have a stage of the pipeline each.
# All three learn the same.
#
# * **You learn** to write a script that knows which share of the work is its own, to start it with
#   `ipurun`, and to see what each process does when.
# * **It takes** ten minutes to read, and a minute to run.
# * **It needs** the notebook on pipelines (04), and the extra `notebooks`.

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The script
#
# It is a script for one process, but for two lines: how many IPUs it has, and which batches are its
# own. `popdist` tells both; in a process that nobody else has joined, that is all of them.
#
# * `getNumLocalReplicas()` replicas run in this instance, of `getNumTotalReplicas()`;
# * batch n is for replica n modulo all of them, so each instance picks those of its replicas.

# %%
shares = """
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu  # under ipurun, this meets the other instances
from ipujax.cross_replica_optimizer import CrossReplicaOptimizer
from ipujax.demo.digits import load_digits
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline

STEPS, MICRO_BATCHES, BATCH = 60, 8, 16
popdist = ipu.popdist
total, local = popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()
each = MICRO_BATCHES // total  # a replica's, of a step

config = ipu.config.IPUConfig()
config.auto_select_ipus = local * 2  # a replica is a pipeline of two stages
config.configure_ipu_system()

images, labels, test_images, test_labels = load_digits()
picks = np.random.default_rng(0).integers(len(images), size=(STEPS * MICRO_BATCHES, BATCH))
first = popdist.getInstanceIndex() * local % total
mine = [n for n in range(len(picks)) if first <= n % total < first + local]
batches = [(images[picks[n]].reshape(BATCH, 64), labels[picks[n]]) for n in mine]
"""

# %% [markdown]
# Then a pipeline of two stages. Nothing in it knows of processes; the optimizer sums gradients over
# all replicas, wherever they are.

# %%
model = """
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches)
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
optimizer = CrossReplicaOptimizer(optax.sgd(0.1 / each, momentum=0.9))


def hidden(weights, x, label):
    return jax.nn.relu(x @ weights["in"]), label


def classified(weights, h, label):
    return optax.softmax_cross_entropy_with_integer_labels(h @ weights["out"], label).mean()


@ipu.compile
def train(weights):
    return pipeline(
        [hidden, classified],
        each,
        repeat_count=STEPS,
        variables=weights,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        optimizer_function=lambda loss, *_: OptimizerFunctionOutput(optimizer, loss),
    )
"""

# %% [markdown]
# At the end it trains, and writes down what it has learned, what it did when, and the first lines
# of its report.

# %%
run_it = """
random = np.random.default_rng(1)
weights = {
    "in": random.normal(size=(64, 128), scale=0.1).astype(np.float32),
    "out": random.normal(size=(128, 10), scale=0.1).astype(np.float32),
}
with ipu.host_trace.record() as trace:
    weights, _ = jax.block_until_ready(train(weights))
losses = jax.tree.leaves(outfeed.dequeue())[0].reshape(STEPS, -1).mean(1)

scores = jax.nn.relu(test_images.reshape(-1, 64) @ weights["in"]) @ weights["out"]
told = {
    "losses": losses.tolist(),
    "accuracy": float((scores.argmax(1) == test_labels).mean()),
    "weights": np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(weights)]).tolist(),
    "spans": [[s.kind, s.start, s.seconds] for s in trace.spans],
    "report": str(train.lower(weights).report()).splitlines()[:3],
}
with open(f"{sys.argv[1]}{popdist.getInstanceIndex()}.json", "w") as file:
    json.dump(told, file)
right = f"{told['accuracy']:.1%} right"
print(f"instance {popdist.getInstanceIndex()}: {len(batches)} batches, {right}")
"""

script = folder / "train.py"
source = shares + model + run_it
print(script.write_text(source), "letters")


# %%
def run(name, *options):
    """Runs the script, shows what it prints, and returns what each instance has written."""
    launch = [sys.executable, "-m", "ipujax.distribution.launch", *options]
    command = [*launch, sys.executable, str(script), str(folder / name)]
    print(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}*.json"))]


# %% [markdown]
# In a terminal, `python -m ipujax.distribution.launch` is `ipurun`. First one process with both
# replicas, as ever.

# %%
(alone,) = run("alone", "--num-replicas", "2", "--ipus-per-replica", "2", "--print-topology")

# %% [markdown]
# ## A replica each
#
# `--num-instances 2` deals the replicas to two processes. Each feeds its own with half of the
# batches; the gradients of both are summed over the wire, by `jax.distributed`.

# %%
two = ["--num-instances", "2", "--num-replicas", "2", "--ipus-per-replica", "2"]
replicas = run("replicas", *two, "--print-topology", "--tag-output")

# %% [markdown]
# Weights are those of one process, but for the order in which floats are added up, and each
# instance has the losses of its own replica.

# %%
mean = np.mean([each["losses"] for each in replicas], axis=0)
print(f"largest difference of a loss: {np.abs(mean - alone['losses']).max():.1e}")
apart = [np.abs(np.subtract(each["weights"], alone["weights"])).max() for each in replicas]
print(f"largest difference of a weight: {max(apart):.1e}")

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
for number, each in enumerate(replicas):
    axes.plot(each["losses"], linewidth=1, alpha=0.6, label=f"instance {number}")
axes.plot(alone["losses"], color="black", linestyle="--", label="one process")
axes.set(xlabel="step", ylabel="loss", xlim=0, ylim=0)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# The machine model takes instances to be machines of their own: collectives between them go
# through gateways, which are slower than the links between IPUs.

# %%
print(*alone["report"], "", *replicas[0]["report"], sep="\n")

# %% [markdown]
# ## A stage each
#
# `--spread ipus` deals the IPUs of one replica instead: the first stage runs in one process, the
# second in the other, and activations and gradients go from process to process. Every process
# sees all results, so the script stays as it is; the one replica has all batches of a step.

# %%
spread = ["--num-instances", "2", "--ipus-per-replica", "2", "--spread", "ipus"]
stages = run("stages", *spread, "--print-topology", "--tag-output")
for name in ("losses", "weights"):
    apart = [np.abs(np.subtract(each[name], alone[name])).max() for each in stages]
    print(f"largest difference of {name}: {max(apart):.1e}")

# %% [markdown]
# ## Who did what, when
#
# What each process was at, from the trace that it has recorded: at work for the program, and
# beside that making elements for its queue. At the left both trace, lower and compile.

# %%
rows = {"one process": alone}
rows |= {f"replica {n}": each for n, each in enumerate(replicas)}
rows |= {f"stage {n}": each for n, each in enumerate(stages)}
colours = {"trace": "C4", "lower": "C1", "compile": "C3", "execute": "C0", "feed": "C2"}
figure, axes = plt.subplots(figsize=(9, 3))
for height, each in enumerate(rows.values()):
    for kind, colour in colours.items():
        bars = [(start, seconds) for what, start, seconds in each["spans"] if what == kind]
        if bars:
            axes.broken_barh(bars, (height - 0.4, 0.8), color=colour, label=kind)
axes.set_yticks(range(len(rows)), list(rows))
axes.spines[["top", "right"]].set_visible(False)
axes.invert_yaxis()
axes.set_xlabel("seconds")
handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
axes.legend(
    handles.values(),
    handles.keys(),
    ncols=5,
    loc="lower center",
    bbox_to_anchor=(0.5, 1),
    frameon=False,
)
plt.show()

# %% [markdown]
# Two replicas pay where there is more data than one process computes in time: only gradients cross
# between processes, once a step. Stages pay where a model has no room in one machine: activations
# cross in every micro-batch. [docs/processes.md](../docs/processes.md) has two machines, Slurm, and
# what to know of security.
#
# ## Try
#
# 1. Start four instances with a replica each: `--num-instances 4 --num-replicas 4`. How many
#    batches has each, and do all learn the same as before?
# 2. Have the script make its batches slowly, with a `time.sleep` in a generator. Who waits for whom
#    in the last picture?
