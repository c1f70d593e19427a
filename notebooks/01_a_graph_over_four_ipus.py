# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A graph over four IPUs
#
# An IPU program is one graph, and you say which chip each part of it lives on. This notebook takes
# the smallest graph worth splitting, three sums and their total, from a plain JAX function to a
# program for four virtual IPUs. On the way it answers four questions:
#
# 1. Which IPUs do I get?
# 2. What does my function become?
# 3. What happens to the backward pass, of which I wrote nothing?
# 4. What if the device has more IPUs than my graph needs?
#
# * **You learn** how to choose IPUs, how to put parts of a function on them, and how to read the
#   program that it becomes.
# * **It takes** fifteen minutes to read, and ten seconds to run.
# * **It needs** JAX as far as `jax.jit` and `jax.grad`, and the extra `notebooks`. No IPU, no GPU,
#   nothing to download.
#
# Virtual IPUs stand on JAX devices. One CPU can pose as four of those, so that the four IPUs
# really are four devices here. The flag must be set before JAX starts; without it everything below
# gives the same numbers on a single device.

# %%
import contextlib
import io
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from ipujax.cli import info

print(jax.devices())

# %% [markdown]
# ## Which IPUs do I get?
#
# The virtual machine has sixteen IPUs, and lists them as `gc-info -l` would in a shell: first each
# alone, then in groups of two, four, eight and sixteen that are linked among themselves. Every
# group has an id, and an id is what a program attaches to. Here are the first lines, and group 24.

# %%
with contextlib.redirect_stdout(io.StringIO()) as listed:
    info.main(["--list-devices"])
lines = listed.getvalue().splitlines()
group = next(number for number, line in enumerate(lines) if "- Id: [24]" in line)
print(*lines[:4], "...", *lines[group : group + 5], sep="\n")

# %% [markdown]
# Asking for a number of IPUs takes the first group that is large enough. Four IPUs are group 24,
# and configuring says so in the log, on standard error.

# %%
config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()

# %% [markdown]
# Shards are numbered from 0 along an order of selection. The IPUs of a group form a ladder: 0 and
# 1 are the first rung, 2 and 3 the second, and links run along rungs and rails. `SNAKE`, which
# `AUTO` stands for, winds up the ladder, so that every shard is linked to the next one, which is
# what a model cut into consecutive layers wants. `ZIGZAG` keeps the group's numbering. `HOOF` goes
# up one rail and down the other, and so links the last shard to the first: right for a ring.
#
# A lowered program knows its device, and the device knows which physical IPU each shard is. Here it
# is for the first group of eight.


# %%
def ipus_by(order):
    ordered = ipu.config.IPUConfig()
    ordered.select_ipus = 28  # the first group of eight
    ordered.selection_order = order
    ordered.configure_ipu_system()
    return ipu.compile(lambda: jnp.zeros(())).lower().device.ipus


for order in ipu.config.SelectionOrder:
    print(f"{order.name:<7} shards 0 to 7 are IPUs {ipus_by(order)}")

# %% [markdown]
# Back to the four. A notebook draws a device as the ladder that it is.

# %%
config.configure_ipu_system()
ipu.compile(lambda: jnp.zeros(())).lower().device

# %% [markdown]
# ## What does my function become?
#
# First without any marks. The function is traced, as `jax.jit` would trace it, and lowered to a
# *Program*, which is a list of steps for all IPUs. This one has a single kernel: nothing asked for
# a second IPU. (The first line says four replicas; that is the fourth question.)


# %%
def graph(pa, pb, pc):
    o1 = pa + pb
    o2 = pa + pc
    o3 = pb + pc
    return o1 + o2 + o3


pa, pb, pc = np.float32([1, 1]), np.float32([0, 1]), np.float32([1, 5])
print(ipu.compile(graph).lower(pa, pb, pc).as_text())

# %% [markdown]
# Now with a scope around each part. Nothing else changes: not the function's arguments, not its
# result, and plain `jax.jit` of it does not even notice.


# %%
@ipu.compile
def sharded_graph(pa, pb, pc):
    with ipu.scopes.ipu_shard(0):
        o1 = pa + pb
    with ipu.scopes.ipu_shard(1):
        o2 = pa + pc
    with ipu.scopes.ipu_shard(2):
        o3 = pb + pc
    with ipu.scopes.ipu_shard(3):
        return o1 + o2 + o3


lowered = sharded_graph.lower(pa, pb, pc)
print(lowered)

# %% [markdown]
# A notebook draws it, too: the IPUs, what they run, and what flows between them.

# %%
lowered

# %% [markdown]
# Read it from the top. Arguments begin on the host and are copied to the IPUs that read them, so
# `%0` travels twice, to IPUs 0 and 1. Each IPU has one kernel, with the operations that became
# part of it in brackets. The three sums share no values, so nothing makes one wait for another.
# Then come the copies that a machine of several chips cannot do without, and the total on IPU 3.
#
# Which JAX device stands for which IPU is the program's *placement*. The IPUs of a logical device
# are dealt out to the JAX devices in turn, whatever their ids: shard 0 is IPU 5, as the listing of
# group 24 says, and stands on device 0.

# %%
for ipu_id, device in zip(lowered.device.ipus, lowered.placement.devices, strict=True):
    print(f"IPU {ipu_id} stands on JAX device {device.id}")

# %% [markdown]
# Called like any function, it gives what plain JAX gives.

# %%
print("over four IPUs:", sharded_graph(pa, pb, pc))
print("plain jax.jit: ", jax.jit(graph)(pa, pb, pc))

# %% [markdown]
# The text is what the compiler decided; an *engine* decides how to run it. `replay` takes the
# steps one by one, each kernel on its IPU's device. `fused` makes the whole tree one XLA
# computation on one device, which saves a dispatch for every step. `auto`, the default, looks at
# the devices and sizes and picks. It never matters for the numbers.

# %%
for engine in ("replay", "fused"):
    executable = ipu.compile(sharded_graph, engine=engine).lower(pa, pb, pc).compile()
    print(engine, executable(pa, pb, pc))
    print(executable.as_text())

# %% [markdown]
# ## What happens to the backward pass?
#
# A scope leaves a mark in the name that JAX keeps for each operation, and JAX carries those names
# through its transformations. So the marks are still there after `jax.grad`, and an operation's
# backward pass runs where the operation did. Here is a network of two layers, forward only, and
# then its gradient.


# %%
def loss_of(weights, x, y):
    with ipu.scopes.ipu_shard(0):
        hidden = jnp.tanh(x @ weights["first"])
    with ipu.scopes.ipu_shard(1):
        return jnp.sum((hidden @ weights["second"] - y) ** 2)


weights = {"first": jnp.full((4, 8), 0.1), "second": jnp.full((8, 1), 0.2)}
x, y = np.ones((16, 4), np.float32), np.zeros((16, 1), np.float32)

print(ipu.compile(loss_of).lower(weights, x, y).as_text())

# %%
gradient = ipu.compile(jax.grad(loss_of), name="gradient")
print(gradient.lower(weights, x, y).as_text())

# %% [markdown]
# Forward, the activations of the first layer go from IPU 0 to IPU 1. Backward, their cotangent
# comes back the other way, and IPU 0 finishes the gradient of its own weights. Each gradient is
# born on the IPU of the weights that it belongs to, which is where an optimizer will want it.

# %%
plain = jax.jit(jax.grad(loss_of))(weights, x, y)
for name, mine in gradient(weights, x, y).items():
    print(f"{name}: furthest from plain JAX {np.abs(mine - plain[name]).max():.0e}")

# %% [markdown]
# ## What if there are more IPUs than the graph needs?
#
# Then the graph is replicated until the device is full. Nobody states the factor: a graph on two
# shards makes two replicas on a device of four IPUs, and eight on one of sixteen. That is why the
# unmarked function above had four replicas.
#
# Arguments go to every replica, and what the caller gets back is replica 0's result. What makes
# replicas useful is that each can have data of its own, and that they can talk. The next notebook
# has the data; here they only count themselves.


# %%
@ipu.compile
def census():
    with ipu.scopes.ipu_shard(0):
        mine = ipu.replication_ops.replication_index() + 1
    with ipu.scopes.ipu_shard(1):
        return ipu.cross_replica_ops.cross_replica_sum(mine)


for ipus in (2, 4, 8, 16):
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    first_line = census.lower().as_text().partition("\n")[0]
    total = int(census())
    print(f"{ipus:>2} IPUs: {first_line}; 1 + 2 + ... = {total}")

# %% [markdown]
# A graph that does not fit is an error, and the message says what would fit.

# %%
config.auto_select_ipus = 2
config.configure_ipu_system()
try:
    sharded_graph(pa, pb, pc)
except ipu.errors.ShardError as error:
    print(error)

# %% [markdown]
# ## Try
#
# 1. Move the total to IPU 0, and lower again. Which copies are left, and which are new?
# 2. Take the mark off `o2 = pa + pc`. Where does it go? The third notebook has the rules.
