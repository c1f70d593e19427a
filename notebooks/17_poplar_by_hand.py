# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Poplar by hand
#
# Below PyTorch and TensorFlow, an IPU is programmed in Poplar: variables on tiles, vertices that
# read and write them, compute sets, programs, an engine. `ipujax.poplar` has the names of its C++
# API. JAX, or your C++ compiler, computes the values; the machine model tells the cycles of each
# tile. Here are Poplar's first six tutorials, a heat equation, a lattice Boltzmann method and
# eigenvalues by Jacobi's method.
#
# * **You learn** to read a Poplar program in C++ as one in Python, and what its cycles are made of.
# * **It takes** twenty minutes to read, and less than a minute to run.
# * **It needs** [reading a report](06_reading_a_report.ipynb), a C++ compiler, and the extra
#   `notebooks`.

# %%
import io

import matplotlib.pyplot as plt
import numpy as np

from ipujax import poplar
from ipujax.poplar import poplin, popops, poputil, program

# %% [markdown]
# ## From C++ to Python
#
# A namespace is a module, braces are a list or a dict, overloads go by type, and a debug context is
# a text. So a line of a tutorial stays a line:
#
# | in C++ | in Python |
# |---|---|
# | a graph of the device's target | `poplar.Graph(device.getTarget())` |
# | a variable, template arguments for its type | `graph.addVariable(poplar.FLOAT, [4], "v1")` |
# | a vertex with its fields in double braces | `graph.addVertex(cs, "Sum", {"in": x, "out": y})` |
# | a stream from a pointer to its end | `engine.connectStream("x", array)`: used in place |
#
# ## Tutorial 1: programs and variables
#
# Variables lie on tiles that you choose, tensors are views of them, and a program copies.

# %%
device = poplar.IPUModel().createDevice()


def spread(graph, *tensors):
    """Puts tensors on tiles linearly, and lets the host write and read them by their names."""
    for tensor in tensors:
        poputil.mapTensorLinearly(graph, tensor)
        graph.createHostWrite(tensor.name, tensor)
        graph.createHostRead(tensor.name, tensor)


def loaded(graph, steps, options=None):
    """An engine that is ready to run."""
    engine = poplar.Engine(graph, steps, options or {})
    engine.load(device)
    return engine


# %%
graph = poplar.Graph(device.getTarget())
v1 = graph.addVariable(poplar.FLOAT, [4], "v1")
v3 = graph.addVariable(poplar.FLOAT, [4, 4], "v3")
spread(graph, v1, v3)
for i in range(4):
    graph.setTileMapping(v3[i], i)
c1 = graph.addConstant(poplar.FLOAT, [4], [1.0, 1.5, 2.0, 2.5])
graph.setTileMapping(c1, 0)

steps = program.Sequence([program.Copy(c1, v1)])
steps.add(program.Copy(v1, v3.transpose()[1]))
engine = loaded(graph, steps)
engine.writeTensor("v3", np.zeros((4, 4)))
engine.run(0)
print(engine.readTensor("v3"))

# %% [markdown]
# What nothing has written may not be read: the chip would give whatever its memory holds, here it
# is an error with the line, the tensor and the element.

# %%
try:
    loaded(graph, program.Copy(v3[0], v1)).run(0)
except poplar.control_program_error as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# ## Tutorial 2: PopLibs
#
# Libraries add compute sets and copies to a sequence. Slices are operands as any other tensor.

# %%
graph = poplar.Graph(device.getTarget())
popops.addCodelets(graph)
v1 = graph.addVariable(poplar.FLOAT, [2, 2], "v1")
v2 = graph.addVariable(poplar.FLOAT, [2, 2], "v2")
spread(graph, v1, v2)
steps = program.Sequence()
v3 = popops.add(graph, v1, v2, steps)
v4 = popops.add(graph, v3, v2.transpose(), steps)
graph.createHostRead("v4", v4)
engine = loaded(graph, steps)
engine.writeTensor("v1", [[1, 1.5], [2, 2.5]])
engine.writeTensor("v2", [[4, 3], [2, 1]])
engine.run(0)
print(engine.readTensor("v4"))

# %% [markdown]
# ## Tutorial 3: vertices
#
# A codelet is the kernel of a tile. It may be C++, with the classes of Poplar: your compiler makes
# a library of it, and each vertex runs on memory of its own, with guard words around every field.

# %%
SUM = """
#include <poplar/Vertex.hpp>
class SumVertex : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> in;
  poplar::Output<float> out;
  bool compute() {
    float sum = 0;
    for (unsigned i : poplar::loop(in.size(), 1, 0, 1)) sum += in[i];
    *out = sum;
    return true;
  }
};
"""
graph = poplar.Graph(device.getTarget())
graph.addCodelets(io.StringIO(SUM))
v1 = graph.addVariable(poplar.FLOAT, [4], "v1")
v2 = graph.addVariable(poplar.FLOAT, [4], "v2")
spread(graph, v1, v2)
sums = graph.addComputeSet("sums")
for i in range(4):
    vertex = graph.addVertex(sums, "SumVertex", {"in": v1.slice(i, 4), "out": v2[i]})
    graph.setTileMapping(vertex, i)

# %%
engine = loaded(graph, program.Execute(sums))
engine.writeTensor("v1", [7.0, 2.0, 1.5, 0.5])
engine.run(0)
print(engine.readTensor("v2"))
print(engine.report().compute_sets[0].tile_cycles[:5])

# %% [markdown]
# Six workers share a tile in turns, so a worker's cycle is six of the tile's: four additions take
# 24. `poplar::loop` marks a loop with the loads, stores and operations of an iteration. On the chip
# it would be an ordinary loop; `setPerfEstimate` and `registerPerfEstimator` say cycles as in C++.
#
# A codelet may be a function of JAX, too: a parameter is a field, and it returns what it writes.

# %%


@poplar.codelet(cycles=lambda a: 5 + (a.size + 1) // 2)
def DotProduct(
    a: poplar.Input[poplar.Vector[poplar.FLOAT]],
    b: poplar.Input[poplar.Vector[poplar.FLOAT]],
    out: poplar.Output[poplar.FLOAT],
):
    return {"out": (a * b).sum()}


# %% [markdown]
# ## Tutorial 4: profiles
#
# Two products of matrices by PopLibs, and what they take. The report is that of every other
# program: in text, as a page, for Perfetto.

# %%
graph = poplar.Graph(device.getTarget())
shapes = {"m1": [900, 600], "m2": [600, 300], "m3": [300, 200]}
m1, m2, m3 = (graph.addVariable(poplar.FLOAT, shape, name) for name, shape in shapes.items())
spread(graph, m1, m2, m3)
steps = program.Sequence()
m4 = poplin.matMul(graph, m1, m2, steps, "m4")
m5 = poplin.matMul(graph, m4, m3, steps, "m5")
engine = loaded(graph, steps, {"debug.readUnwritten": "zero"})
engine.run(0)
report = engine.report()
for each in report.compute_sets:
    print(f"{each.name:24} {each.cycles:7,} cycles, {int(each.vertices.sum()):6,} vertices")
print(f"{report.cycles:,} cycles a call")

# %% [markdown]
# ## Tutorial 5: a matrix times a vector
#
# One vertex for each row. Values go in and out by streams.

# %%


def multiply_rows(rows, cols):
    """The tutorial's program, and an engine of it with a matrix."""
    graph = poplar.Graph(device.getTarget())
    matrix = graph.addVariable(poplar.FLOAT, [rows, cols], "matrix")
    x = graph.addVariable(poplar.FLOAT, [cols], "x")
    y = graph.addVariable(poplar.FLOAT, [rows], "y")
    spread(graph, matrix, x, y)
    products = graph.addComputeSet("products")
    for row in range(rows):
        vertex = graph.addVertex(products, DotProduct, {"a": matrix[row], "b": x, "out": y[row]})
        graph.setTileMapping(vertex, row % 1472)
    into = graph.addHostToDeviceFIFO("into", poplar.FLOAT, cols)
    out = graph.addDeviceToHostFIFO("out", poplar.FLOAT, rows)
    steps = [program.Copy(into, x), program.Execute(products), program.Copy(y, out)]
    return loaded(graph, program.Sequence(steps))


rng = np.random.default_rng(0)
host_matrix = rng.normal(size=(400, 90)).astype(np.float32)
host_x, host_y = rng.normal(size=90).astype(np.float32), np.zeros(400, np.float32)
engine = multiply_rows(400, 90)
engine.connectStream("into", host_x)
engine.connectStream("out", host_y)
engine.writeTensor("matrix", host_matrix)
engine.run(0)
print(f"largest difference from NumPy: {abs(host_y - host_matrix @ host_x).max():.1e}")

# %% [markdown]
# ## Tutorial 6: the same, faster
#
# Rows are cut into sections, so that more tiles have work; a second compute set adds the sections
# up. The tutorial estimates each split from the target and takes the cheapest. Its own test
# expects at most 64 373 cycles of a first-generation IPU for 10 000 rows and 1 000 columns.

# %%


def estimate(target, rows, cols, split):
    """The tutorial's estimate: two compute sets, and an exchange before each."""
    tiles, workers = target.getNumTiles(), target.getNumWorkerContexts()
    per_cycle, section = target.getExchangeBytesPerCycle(), -(-cols // split)
    vertices = max(-(-rows * split // tiles), 1)
    sums = max(-(-rows // tiles), 1)
    multiplying = -(-vertices // workers) * workers * (5 + (section + 1) // 2)
    adding = -(-sums // workers) * workers * (5 + (split + 1) // 2)
    exchanges = -(-vertices // rows) * section * 4 // per_cycle + sums * split * 4 // per_cycle
    return multiplying + adding + int(exchanges)


for version in ("ipu1", "ipu2"):
    target = poplar.IPUModel(version).createDevice().getTarget()
    costs = [estimate(target, 10_000, 1_000, split) for split in range(1, 1_000)]
    print(
        f"{version}: worst {max(costs):,}, best {min(costs):,} at {np.argmin(costs) + 1} sections"
    )

# %% [markdown]
# Cycles can be checked against chips, too: of `scaledAddTo` on one tile, measured ones are
# published with TessellateIPU.

# %%
print("elements  measured  modelled")
for elements, measured in ((64, 375), (128, 467), (256, 665), (512, 1043)):
    graph = poplar.Graph(device.getTarget())
    a = graph.addVariable(poplar.FLOAT, [elements], "a")
    b = graph.addVariable(poplar.FLOAT, [elements], "b")
    for tensor in (a, b):
        graph.setTileMapping(tensor, 0)
    steps = program.Sequence()
    popops.scaledAddTo(graph, a, b, 0.5, steps)
    modelled = poplar.Engine(graph, steps).report().compute_sets[0].cycles
    print(f"{elements:8} {measured:9,} {modelled:9,}")

# %% [markdown]
# ## A heat equation on all tiles
#
# 368 x 256 points, 8 x 8 on each of 1 472 tiles. A vertex takes its block and a border of one
# point, which other tiles hold: slices of the whole mesh, so that Poplar finds what moves.

# %%
ROWS, COLS, BLOCK = 368, 256, 8
TILES_ACROSS = COLS // BLOCK


@poplar.codelet(kind="MultiVertex", cycles=lambda out: 20 + 6 * out.size)
def HeatBlock(
    around: poplar.Input[poplar.Vector[poplar.FLOAT]],
    out: poplar.Output[poplar.Vector[poplar.FLOAT]],
):
    x = around.reshape(BLOCK + 2, BLOCK + 2)
    sides = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    return {"out": (x[1:-1, 1:-1] + 0.2 * (sides - 4 * x[1:-1, 1:-1])).reshape(-1)}


def blocks():
    """Each tile with the first row and column of its block."""
    for row in range(0, ROWS, BLOCK):
        for col in range(0, COLS, BLOCK):
            yield row // BLOCK * TILES_ACROSS + col // BLOCK, row, col


# %%
graph = poplar.Graph(device.getTarget())
meshes = [graph.addVariable(poplar.FLOAT, [ROWS + 2, COLS + 2], name) for name in ("old", "new")]
for mesh in meshes:
    for tile, row, col in blocks():  # the border, too; what is inside follows below
        graph.setTileMapping(mesh.slice([row, col], [row + BLOCK + 2, col + BLOCK + 2]), tile)
    graph.setInitialValue(mesh, 0)
    graph.createHostWrite(mesh.name, mesh)
    graph.createHostRead(mesh.name, mesh)
half_steps = []
for source, target in (meshes, meshes[::-1]):
    cs = graph.addComputeSet("heat")
    for tile, row, col in blocks():
        around = source.slice([row, col], [row + BLOCK + 2, col + BLOCK + 2])
        out = target.slice([row + 1, col + 1], [row + BLOCK + 1, col + BLOCK + 1])
        vertex = graph.addVertex(cs, HeatBlock, {"around": around.flatten(), "out": out.flatten()})
        for each in (out, vertex):
            graph.setTileMapping(each, tile)
    half_steps.append(program.Execute(cs))
engine = loaded(graph, program.Repeat(100, program.Sequence(half_steps)))

# %%
start = np.zeros((ROWS + 2, COLS + 2), np.float32)
start[100:260, 60:190] = 1
engine.writeTensor("old", start)
engine.run(0)
found = engine.readTensor("old")

wanted = start.copy()
for _ in range(200):
    inner = wanted[1:-1, 1:-1]
    sides = wanted[:-2, 1:-1] + wanted[2:, 1:-1] + wanted[1:-1, :-2] + wanted[1:-1, 2:]
    wanted[1:-1, 1:-1] = inner + np.float32(0.2) * (sides - 4 * inner)
print(f"largest difference from NumPy: {abs(found - wanted).max():.1e}")

# %%
report = engine.report()
half = report.compute_sets[0]
moved = report.exchanges[0]
print(
    f"{report.cycles / 200:.0f} cycles a step: {half.cycles} compute and sync, "
    f"{moved.cycles} exchange"
)
busiest, mean = moved.received_bytes.max(), moved.received_bytes.mean()
print(f"a tile receives at most {busiest} bytes, {mean:.0f} on average")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6))
axes[0].imshow(start)
axes[1].imshow(found)
axes[2].imshow(moved.received_bytes.reshape(-1, TILES_ACROSS))
for axis, title in zip(
    axes, ("before", "after 200 steps", "bytes that tiles receive"), strict=True
):
    axis.set_title(title)
    axis.axis("off")
figure.tight_layout()

# %% [markdown]
# ## A lattice Boltzmann method
#
# Nine directions of particles for each point. They move to the next point, which is a view of the
# tensor in another order; then those of a point collide, which is a vertex. A field of nine vectors
# is a vector of fields.

# %%
DIRECTIONS = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
WEIGHTS = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)


def collide(f):
    """The particles of each direction after they have met: works on NumPy's and JAX's arrays."""
    density = sum(f)
    u = sum(e[0] * g for e, g in zip(DIRECTIONS, f, strict=True)) / density
    v = sum(e[1] * g for e, g in zip(DIRECTIONS, f, strict=True)) / density
    square = 1.5 * (u * u + v * v)
    results = []
    for (ex, ey), weight, g in zip(DIRECTIONS, WEIGHTS.tolist(), f, strict=True):
        along = 3 * (ex * u + ey * v)
        results.append(g + 0.8 * (weight * density * (1 + along + along * along / 2 - square) - g))
    return results


@poplar.codelet(kind="MultiVertex", cycles=lambda out: 30 + 90 * out[0].size)
def Collide(
    f: poplar.Vector[poplar.Input[poplar.Vector[poplar.FLOAT]]],
    out: poplar.Vector[poplar.Output[poplar.Vector[poplar.FLOAT]]],
):
    return {"out": collide(f)}


# %%


def rolled(tensor, shift, dimension):
    """A view of a tensor whose elements have moved along a dimension, around its end."""
    extent = tensor.dim(dimension)
    cut = -shift % extent
    parts = [tensor.slice(cut, extent, dimension), tensor.slice(0, cut, dimension)]
    return poplar.concat(parts, dimension)


graph = poplar.Graph(device.getTarget())
f = graph.addVariable(poplar.FLOAT, [9, ROWS, COLS], "f")
g = graph.addVariable(poplar.FLOAT, [9, ROWS, COLS], "g")
half_steps = []
for source, target in ((f, g), (g, f)):
    moved = [rolled(rolled(source[i], e[0], 0), e[1], 1) for i, e in enumerate(DIRECTIONS)]
    cs = graph.addComputeSet("lattice Boltzmann")
    for tile, row, col in blocks():
        begin, end = [row, col], [row + BLOCK, col + BLOCK]
        out = [target[i].slice(begin, end).flatten() for i in range(9)]
        came = [each.slice(begin, end).flatten() for each in moved]
        vertex = graph.addVertex(cs, Collide, {"f": came, "out": out})
        for each in (*out, vertex):
            graph.setTileMapping(each, tile)
    half_steps.append(program.Execute(cs))
graph.createHostWrite("f", f)
graph.createHostRead("f", f)
graph.setInitialValue(g, 0)
engine = loaded(graph, program.Repeat(5, program.Sequence(half_steps)))

# %%
bump = np.exp(-((np.arange(ROWS)[:, None] - 180) ** 2 + (np.arange(COLS) - 128) ** 2) / 200)
state = WEIGHTS[:, None, None] * (1 + 0.1 * bump.astype(np.float32))
engine.writeTensor("f", state)
engine.run(0)
wanted = list(state)
for _ in range(10):
    wanted = collide([np.roll(g, e, (0, 1)) for g, e in zip(wanted, DIRECTIONS, strict=True)])
found = engine.readTensor("f")
print(f"largest difference from NumPy: {abs(found - np.stack(wanted)).max():.1e}")
print(f"mass before and after: {state.sum():.1f}, {found.sum():.1f}")
step = engine.report()
print(
    f"{step.cycles / 10:.0f} cycles a step, {step.exchanges[0].received_bytes.max()} bytes received"
)

# %% [markdown]
# ## Eigenvalues by Jacobi's method
#
# A rotation of two rows and columns makes one pair of elements zero. Rotations of disjoint pairs go
# at the same time: one vertex for each pair finds its angle, then others rotate columns, then rows.

# %%
SIZE = 16


@poplar.codelet(kind="SupervisorVertex", cycles=120)
def Angle(
    pp: poplar.Input[poplar.FLOAT],
    qq: poplar.Input[poplar.FLOAT],
    pq: poplar.Input[poplar.FLOAT],
    turn: poplar.Output[poplar.Vector[poplar.FLOAT]],
):
    import jax.numpy as jnp

    angle = 0.5 * jnp.arctan2(2 * pq, qq - pp)
    return {"turn": jnp.stack([jnp.cos(angle), jnp.sin(angle)])}


@poplar.codelet(kind="MultiVertex", cycles=lambda p: 20 + 4 * p.size)
def Rotate(
    p: poplar.InOut[poplar.Vector[poplar.FLOAT]],
    q: poplar.InOut[poplar.Vector[poplar.FLOAT]],
    turn: poplar.Input[poplar.Vector[poplar.FLOAT]],
):
    return {"p": turn[0] * p - turn[1] * q, "q": turn[1] * p + turn[0] * q}


# %%


def rounds(size):
    """Rounds of disjoint pairs in which everyone meets everyone, as in a tournament."""
    seats = list(range(size))
    for _ in range(size - 1):
        yield [tuple(sorted((seats[i], seats[-1 - i]))) for i in range(size // 2)]
        seats = [seats[0], seats[-1], *seats[1:-1]]


graph = poplar.Graph(device.getTarget())
matrix = graph.addVariable(poplar.FLOAT, [SIZE, SIZE], "matrix")
turns = graph.addVariable(poplar.FLOAT, [SIZE // 2, 2], "turns")
spread(graph, matrix, turns)
sweep = program.Sequence()
for pairs in rounds(SIZE):
    angles, columns, rows = (graph.addComputeSet(name) for name in ("angles", "columns", "rows"))
    for tile, (p, q) in enumerate(pairs):
        turn = turns[tile]
        fields = {"pp": matrix[p][p], "qq": matrix[q][q], "pq": matrix[p][q], "turn": turn}
        made = [graph.addVertex(angles, Angle, fields)]
        for cs, view in ((columns, matrix.transpose()), (rows, matrix)):
            made.append(graph.addVertex(cs, Rotate, {"p": view[p], "q": view[q], "turn": turn}))
        for vertex in made:
            graph.setTileMapping(vertex, tile)
    for cs in (angles, columns, rows):
        sweep.add(program.Execute(cs))
cycles = poplar.cycleCount(graph, sweep, 0)
graph.createHostRead("cycles", cycles)
engine = loaded(graph, program.Repeat(6, sweep))

# %%
given = rng.normal(size=(SIZE, SIZE)).astype(np.float32)
given = given + given.T
engine.writeTensor("matrix", given)
engine.run(0)
values = np.sort(np.diag(engine.readTensor("matrix")))
print(f"largest difference from NumPy: {abs(values - np.linalg.eigvalsh(given)).max():.1e}")
print(f"{engine.readTensor('cycles')[0]:,} cycles a sweep")

# %% [markdown]
# ## Try
#
# 1. Give each tile of the heat equation vertices of the kind `Vertex`, one for each row, instead of
#    one `MultiVertex`. With which rows of a block do six workers have equal work?
# 2. Map the blocks of the lattice Boltzmann method to tiles in another order. Which numbers change,
#    and which do not?
