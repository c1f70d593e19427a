# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # PopART: graphs by hand, and an ONNX file over two IPUs
#
# PopART ran ONNX graphs on IPUs. One came from a file, or was built operator by operator; a
# session ran it, or trained it and wrote the trained graph to a file again. This notebook goes
# PopART's way through that: a graph of one addition, a regression whose gradients can be looked
# at, and then a classifier that PyTorch exported, trained as a pipeline over two IPUs and read by
# ONNX's own code.
#
# * **You learn** to build a graph, to train it in a session, and to take an ONNX file through a
#   pipeline and back.
# * **It takes** fifteen minutes to read, and half a minute to run.
# * **It needs** ONNX as far as nodes and tensors, and the extras `onnx`, `torch` and `notebooks`.

# %%
import importlib.util
import io
import tempfile
from importlib import resources
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

from ipujax import popart
from ipujax.demo.digits import load_digits

# %% [markdown]
# ## One addition
#
# A `Builder` gives names of tensors; an operator takes names and gives a name. What a run returns
# is said by the `DataFlow`: how many batches a step has, and which tensors are anchors.

# %%
builder = popart.Builder()
shape = popart.TensorInfo("FLOAT", [1])
a = builder.addInputTensor(shape)
b = builder.addInputTensor(shape)
total = builder.aiOnnx.add([a, b])
builder.addOutputTensor(total)

session = popart.InferenceSession(
    fnModel=builder.getModelProto(),
    dataFlow=popart.DataFlow(1, {total: popart.AnchorReturnType("All")}),
    deviceInfo=popart.DeviceManager().createIpuModelDevice({}),
)
session.prepareDevice()
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({a: np.float32([2]), b: np.float32([3])}, anchors))
print(f"2 + 3 = {anchors[total][0]}")

# %% [markdown]
# ## A regression, and its gradients
#
# Weights are inputs that have values from the beginning. A `TrainingSession` differentiates the
# loss and changes them, in each batch of a step. Any tensor's gradient can be an anchor, by
# PopART's name for it: `Gradient___` and the tensor's own.

# %%
random = np.random.default_rng(0)
rows = random.normal(size=(40, 16, 3)).astype(np.float32)  # 40 batches of 16 rows
truth = np.float32([[1.0], [-2.0], [0.5]])

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [16, 3]), "x")
y = builder.addInputTensor(popart.TensorInfo("FLOAT", [16, 1]), "y")
w = builder.addInitializedInputTensor(np.zeros((3, 1), np.float32), "w")
with builder.nameScope("model"):
    guess = builder.aiOnnx.matmul([x, w])
error = builder.aiOnnx.sub([guess, y])
loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([error, error])])

# %%
gradient = popart.reservedGradientPrefix() + w
every_batch = popart.AnchorReturnType("All")
session = popart.TrainingSession(
    fnModel=builder.getModelProto(),
    dataFlow=popart.DataFlow(len(rows), {loss: every_batch, gradient: every_batch}),
    loss=loss,
    optimizer=popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.5, True)}),
    deviceInfo=popart.DeviceManager().createIpuModelDevice({}),
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({x: rows, y: rows @ truth}, anchors))

# %%
learned = {w: np.empty((3, 1), np.float32)}
session.weightsToHost()
session.readWeights(popart.PyWeightsIO(learned))
print("learned", learned[w].ravel(), "of", truth.ravel())

figure, axis = plt.subplots(figsize=(7, 3))
axis.semilogy(anchors[loss], label="loss")
axis.semilogy(np.linalg.norm(anchors[gradient], axis=(1, 2)), label="norm of the gradient")
axis.set(xlabel="batch of the step", xlim=0)
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# The learning rate is not constant (`False`), so another one compiles nothing.

# %%
session.updateOptimizerFromHost(
    popart.SGD({"defaultLearningRate": (0.01, False), "defaultMomentum": (0.5, True)})
)
session.run(popart.PyStepIO({x: rows, y: rows @ truth}, anchors))
print("loss at the end:", anchors[loss][-1])

# %% [markdown]
# ## A file from PyTorch
#
# The classifier of 8 x 8 digits is a module of PyTorch. Where `onnxscript` is installed, PyTorch
# exports it here; ipujax has the file that was made so.


# %%
class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        )
        self.classes = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(256, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
        )

    def forward(self, images):
        return self.classes(self.features(images))


# %%
def exported():
    torch.manual_seed(0)
    file = io.BytesIO()
    program = torch.onnx.export(
        Classifier().eval(),
        (torch.zeros(16, 1, 8, 8),),
        input_names=["images"],
        output_names=["scores"],
        verbose=False,
    )
    program.save(file)
    return file.getvalue()


if importlib.util.find_spec("onnxscript"):
    digits_model = exported()
else:
    digits_model = resources.files("ipujax.demo").joinpath("digits.onnx").read_bytes()

for node in onnx.load_from_string(digits_model).graph.node:
    print(f"{node.op_type:<10} {', '.join(node.input)} -> {', '.join(node.output)}")

# %% [markdown]
# ## Cut in two, with a loss
#
# A `Builder` goes on from a model. The nodes are put on IPUs and into stages by their results: the
# convolution with what follows it up to the pooling on IPU 0, the rest on IPU 1. The loss is an
# operator of Graphcore's own.

# %%
builder = popart.Builder(digits_model)
cut = False
for result in builder.getValueTensorIds():
    builder.virtualGraph(result, int(cut))
    builder.pipelineStage(result, int(cut))
    cut = cut or "pool" in result

with builder.virtualGraph(1), builder.pipelineStage(1):
    labels = builder.addInputTensor("INT32", [16], "labels")
    likelihoods = builder.aiOnnx.logsoftmax(["scores"], axis=1)
    loss = builder.aiGraphcore.nllloss([likelihoods, labels], inputIsLogProbability=True)

# %% [markdown]
# ## Trained as a pipeline
#
# A batch of the step has four micro-batches of 16 digits, whose gradients are averaged; the
# pipeline sends them one after another through both stages, forward and back.

# %%
options = popart.SessionOptions()
options.virtualGraphMode = popart.VirtualGraphMode.Manual
options.enablePipelining = True
options.enableGradientAccumulation = True
options.accumulationFactor = 4
options.accumulationAndReplicationReductionType = popart.ReductionType.Mean

BATCHES = 22
training = popart.TrainingSession(
    fnModel=builder.getModelProto(),
    dataFlow=popart.DataFlow(BATCHES, {loss: popart.AnchorReturnType("All")}),
    loss=loss,
    optimizer=popart.Adam({"defaultLearningRate": (0.01, False)}),
    userOptions=options,
    deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
)
training.prepareDevice()
training.weightsFromHost()
anchors = training.initAnchorArrays()

# %% [markdown]
# Six steps of 22 batches.

# %%
train_images, train_labels, test_images, test_labels = load_digits()
losses = []
for _ in range(6):
    chosen = random.permutation(len(train_images))[: BATCHES * 4 * 16]
    data = {
        "images": train_images[chosen].reshape(BATCHES, 4, 16, 1, 8, 8),
        labels: train_labels[chosen].reshape(BATCHES, 4, 16),
    }
    training.run(popart.PyStepIO(data, anchors))
    losses.extend(anchors[loss].mean(1))

figure, axis = plt.subplots(figsize=(7, 3))
axis.plot(losses)
axis.set(xlabel="weight update", ylabel="loss", xlim=0, ylim=0)
axis.spines[["top", "right"]].set_visible(False)
plt.show()
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")

# %% [markdown]
# ## What the chip would do
#
# The machine model has read the program: memory of all tiles, cycles, and the timeline of both
# IPUs.

# %%
training.getReport()

# %% [markdown]
# ## Saved, and read by ONNX
#
# `modelToHost` writes the graph with the trained weights. It is a file of ONNX; what is PopART's
# in it are the attributes that say where a node runs, and the loss. Without these, ONNX's own
# reference computes the scores, and so does an `InferenceSession`.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "trained.onnx")
    training.modelToHost(str(path))
    trained = onnx.load(path)

for node in trained.graph.node:
    kept = [attribute for attribute in node.attribute if not attribute.name.startswith("__")]
    del node.attribute[:]
    node.attribute.extend(kept)
network = onnx.utils.Extractor(trained).extract_model(["images"], ["scores"])

# %%
count = len(test_images) // 16 * 16
batches = test_images[:count].reshape(-1, 16, 1, 8, 8)
reference = ReferenceEvaluator(network)
expected = np.stack([reference.run(None, {"images": batch})[0] for batch in batches])

# %% [markdown]
# And the same by PopART.

# %%
inference = popart.InferenceSession(
    fnModel=network.SerializeToString(),
    dataFlow=popart.DataFlow(len(batches), {"scores": popart.AnchorReturnType("All")}),
    deviceInfo=popart.DeviceManager().createIpuModelDevice({}),
)
inference.prepareDevice()
anchors = inference.initAnchorArrays()
inference.run(popart.PyStepIO({"images": batches}, anchors))

right = anchors["scores"].argmax(-1).ravel() == test_labels[:count]
print(f"right: {right.mean():.1%}")
print(f"furthest from ONNX: {np.abs(anchors['scores'] - expected).max():.1e}")

# %% [markdown]
# ## Try
#
# 1. Make the cut one layer later: the first product on IPU 0, too. What does the report say of the
#    balance of the two?
# 2. Ask for the gradient of the first kernel as an anchor of the pipeline. What shape does it have,
#    and why?
