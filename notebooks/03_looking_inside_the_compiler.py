# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Looking inside the compiler
#
# `ipu.compile` hides a small compiler, the package `lowering`. It takes a jaxpr and gives a
# Program; it knows no devices, no files and no configuration, so a notebook can drive it by hand.
# We follow one function through all stages:
#
# ```text
# trace -> place -> partition -> insert copies -> (verify) -> fuse
# ```
#
# and then look at three things that a straight line of operations does not show: loops, branches
# and collectives. If you mean to add a pass, this is the tour before reading
# `lowering/compiler.py`, which has the passes in order on one page.
#
# * **You learn** what the compiler does to a function, pass by pass, and how to look at each of its
#   steps.
# * **It takes** twenty minutes to read, and five seconds to run.
# * **It needs** the first notebook, an idea of jaxprs, and the extra `notebooks`.

# %%
import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from lowering import HOST, Options, fuse, ir, is_one_kernel, jaxpr, lower, marks
from lowering.passes.drop_dead import drop_dead
from lowering.passes.inline_calls import inline_calls
from lowering.passes.insert_copies import insert_copies
from lowering.passes.partition import partition
from lowering.passes.place import place

# %% [markdown]
# ## Trace
#
# Tracing is JAX's own. The function below has marks on its two matrix products only; what they
# have in common is left open on purpose. We trace its gradient, so that there is a backward pass
# as well.


# %%
def loss_of(weights, x, y):
    x = x - 0.5
    with ipu.scopes.ipu_shard(0):
        hidden = x @ weights[0]
    hidden = jnp.sin(hidden)
    with ipu.scopes.ipu_shard(1):
        prediction = hidden @ weights[1]
    return jnp.sum((prediction - y) ** 2)


weights = [np.ones((4, 8), np.float32), np.ones((8, 2), np.float32)]
x, y = np.ones((16, 4), np.float32), np.zeros((16, 2), np.float32)

traced = jax.jit(jax.grad(loss_of)).trace(weights, x, y).jaxpr
print(traced)

# %% [markdown]
# A mark is no operation, and the jaxpr shows none. It is text in an equation's *name stack*,
# beside what JAX writes there itself. `jvp(...)` and `transpose(jvp(...))` are JAX's: the second
# tells backward from forward, and that is all that the compiler needs to know about
# differentiation.

# %%
for eqn in traced.eqns:
    stack = jaxpr.name_stack(eqn)
    found = marks.read_marks(stack)
    print(f"{eqn.primitive.name:<17} {stack:<30} shard {found.shard}, backward {found.backward}")

# %% [markdown]
# ## Place
#
# Every equation gets an IPU. What decides, in this order: its own mark; the IPU of its forward
# twin, the equation that the same line of the user's code made; the largest of its operands that
# has an IPU; the equations that use it; and failing all of these, IPU 0.
#
# Before that, `inline_calls` opens inner jitted functions that have marks inside (this one has
# none) and `drop_dead` leaves out what nobody reads: the value of the loss, of which only the
# gradient was asked for.

# %%
alive = drop_dead(inline_calls(traced))
print(len(traced.eqns), "equations,", len(alive.eqns), "of them read")
unread = {eqn.primitive.name for eqn in traced.eqns} - {eqn.primitive.name for eqn in alive.eqns}
print("nobody reads", *sorted(unread))

# %% [markdown]
# Here are all equations with their marks and what `place` makes of them.

# %%
placed = place(alive)


def placement_of(body):
    for eqn, home in zip(body.jaxpr.eqns, body.homes, strict=True):
        found = marks.read_marks(jaxpr.name_stack(eqn))
        yield eqn.primitive.name, found, home, jaxpr.user_line(eqn)


for name, found, home, line in placement_of(placed):
    marked = "-" if found.shard is None else found.shard
    direction = "backward" if found.backward else "forward"
    print(f"{name:<17} {direction:<9} mark {marked}  ->  IPU {home}   # {line}")

# %% [markdown]
# The subtraction is unmarked and works on an argument, which has no home: it goes to IPU 0, to the
# matrix product that uses it. The sine is unmarked too and follows its operand. Its derivative, a
# cosine, comes from the same line as the sine and stays with it, and so does the multiplication by
# that cosine in the backward pass, although its operand comes from IPU 1: the twin counts more.
#
# ## Partition
#
# Neighbouring equations on one IPU become a kernel, which XLA will compile as one computation.
# From here on values have numbers, and the whole is a Program: a tree of frozen dataclasses, with
# a text form that is the same for the same program. At this stage a kernel still reads values of
# other IPUs as if there were only one memory.

# %%
partitioned = partition(placed, name="gradient", ipus=2, replicas=1)
print(ir.to_text(partitioned))

# %% [markdown]
# ## Insert copies
#
# Now every value must be where it is read. Arguments and results live on the host. A copy is made
# once however many kernels read it, and those with the same route and moment travel together.

# %%
program = insert_copies(partitioned)
print(ir.to_text(program))

# %% [markdown]
# Two copies go from IPU to IPU: one forward, one backward.

# %%
copies = [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Copy)]
between = [copy for copy in copies if HOST not in (copy.source, copy.target)]
for copy in between:
    shapes = ", ".join(program.describe_aval(value) for value in copy.values)
    print(f"IPU {copy.source} -> IPU {copy.target}: {shapes}")

# %% [markdown]
# The verifier walks the tree and checks just that: each value is written once, is on the IPU where
# it is read, and every loop variable keeps its shape. It runs at the end of each lowering. Taking
# the copies away again shows that it means it.

# %%
ir.verify(program)
try:
    ir.verify(partitioned)
except ipu.errors.InternalError as error:
    print(error)

# %% [markdown]
# All of this, and the passes for queues, replicas and floating-point checks that have nothing to
# do here, is one call. `Options` is everything that the compiler is told from outside. Its
# `on_pass` is called with the text after a stage that has one, and lets you see what happened on
# the way.

# %%
seen = {}
options = Options(num_ipus=2, name="gradient", on_pass=seen.__setitem__)
lowered = lower(traced, options)

print("stages with a text:", ", ".join(seen))
print("as by hand:", seen["insert_copies"] == ir.to_text(program) == ir.to_text(lowered))

# %% [markdown]
# ## Fuse
#
# A Program is what all engines run. With several devices its kernels are dispatched one by one.
# With a single one that would be a waste, so `fuse` makes one kernel of everything that does not
# need the host. Which nodes do is for the engine to say; here none does.

# %%
fused = fuse(lowered, lambda node: False)
print(ir.to_text(fused))
print("one kernel before:", is_one_kernel(lowered), "and after:", is_one_kernel(fused))

# %% [markdown]
# Nothing has been run so far, nor has anything been compiled by XLA: the compiler works on shapes
# alone. The kernels are jaxprs still.

# %%
kernel = next(node.kernel for node in ir.walk_nodes(lowered.body) if isinstance(node, ir.Execute))
print(kernel.jaxpr)

# %% [markdown]
# ## Loops and branches
#
# Control flow whose inside names at most one shard is an equation like any other, and part of some
# kernel.


# %%
def on_one_ipu(x):
    with ipu.scopes.ipu_shard(1):
        return jax.lax.fori_loop(0, 5, lambda _, c: jnp.sin(c), x)


x = np.ones(3, np.float32)
placed = place(inline_calls(jax.jit(on_one_ipu).trace(x).jaxpr))
for name, _, home, _ in placement_of(placed):
    print(f"{name} -> IPU {home}")

# %% [markdown]
# When the inside names several, the loop is *split*: it has no home itself, and its body is placed
# like a function of its own. In the Program it is a branch of the tree.
#
# Read the loop below as follows. `carry` gives one buffer four names: what it starts as, what the
# body sees, what the body leaves in it, and what is there afterwards. It lives on IPU 1, where the
# body computes its new value. `stack` is an output per iteration. The copies in the body are made
# in every iteration.


# %%
def over_two_ipus(x):
    def body(carried, _):
        with ipu.scopes.ipu_shard(0):
            inner = jnp.sin(carried)
        with ipu.scopes.ipu_shard(1):
            return jnp.cos(inner), inner

    return jax.lax.scan(body, x, None, length=5)


traced = jax.jit(over_two_ipus).trace(x).jaxpr
print(ir.to_text(lower(traced, Options(num_ipus=2, name="over_two_ipus"))))

# %% [markdown]
# The same, as `place` has it. Beside the homes of the body's equations it says where the loop
# leaves its outputs: the carry and the stack.

# %%
placed = place(inline_calls(traced))
((body,),) = placed.bodies.values()
print("the scan itself:", *placed.homes)
for name, _, home, line in placement_of(body):
    print(f"in its body: {name} -> IPU {home}   # {line}")
print("the carry and the stack are on IPUs", placed.outputs)

# %% [markdown]
# A condition is a `switch`, and only its branch's kernels run. Both branches must leave the result
# in the same place. (`lax.cond` numbers its branches like booleans: 0 is false.)


# %%
def one_way_or_the_other(flag, x):
    def sharded(x):
        with ipu.scopes.ipu_shard(0):
            inner = jnp.sin(x)
        with ipu.scopes.ipu_shard(1):
            return inner * 2

    def simple(x):
        with ipu.scopes.ipu_shard(1):
            return -x

    return jax.lax.cond(flag, sharded, simple, x)


traced = jax.jit(one_way_or_the_other).trace(True, x).jaxpr
print(ir.to_text(lower(traced, Options(num_ipus=2, name="one_way_or_the_other"))))

# %%
placed = place(inline_calls(traced))
(branches,) = placed.bodies.values()
for number, branch in enumerate(branches):
    homes = ", ".join(f"{name} -> IPU {home}" for name, _, home, _ in placement_of(branch))
    print(f"branch {number}: {homes}; its result is on IPU {branch.outputs[0]}")

# %% [markdown]
# ## Collectives
#
# How many replicas there will be is known only when all marks have been counted: a device's IPUs
# over the program's shards. Until then a collective is a primitive of its own, and differentiates
# and vectorises as such. The pass `resolve_collectives` then says what it means.


# %%
def weighted_total(x):
    total = ipu.cross_replica_ops.cross_replica_sum(x)
    return total * (1.0 + ipu.replication_ops.replication_index())


traced = jax.jit(weighted_total).trace(x).jaxpr
print(traced)

# %%
for ipus in (1, 4):
    program = lower(traced, Options(num_ipus=ipus, name="weighted_total"))
    (execute,) = (node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Execute))
    print(ir.to_text(program).partition("\n")[0])
    print(execute.kernel.jaxpr, "\n")

# %% [markdown]
# With one replica the sum is gone and the index is the constant 0. With four they are JAX's own
# `psum` and `axis_index` over an axis called `replicas`, which the engine makes either of real
# devices or of one device's vectorised axis. A group size that does not divide the replicas could
# not be seen before this point, and is reported here, with the user's line.

# %%
in_threes = jax.jit(lambda x: ipu.cross_replica_ops.cross_replica_sum(x, 3)).trace(x).jaxpr
try:
    lower(in_threes, Options(num_ipus=4))
except ipu.errors.CollectiveError as error:
    print(error)

# %% [markdown]
# ## The whole
#
# `ipu.compile` does all of this. What it gives is drawn in a notebook: the gradient of the first
# section, over two IPUs.

# %%
config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
ipu.compile(jax.grad(loss_of), name="gradient").lower(weights, np.ones((16, 4), np.float32), y)

# %% [markdown]
# ## Try
#
# 1. Mark the sine with `ipu_shard(1)`, and follow it through `place` and `insert_copies`. What
#    travels now that did not before?
# 2. Give `lower` an `on_pass` that prints how many lines the text has, and find the pass after
#    which it is longest.
