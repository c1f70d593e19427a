# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # PopTorch's MNIST listing
#
# Graphcore's slides put a PyTorch script for GPUs beside the same script for IPUs: options, a data
# loader that knows them, and a wrapper round the model. This notebook runs that listing unchanged
# but for its import, compares it with PyTorch itself, and then trains the same model on four
# replicas and as a pipeline over two IPUs.
#
# * **You learn** to wrap a PyTorch module, what its options do, and that its losses are PyTorch's.
# * **It takes** ten minutes to read, and a minute to run.
# * **It needs** PyTorch, and the extras `torch` and `notebooks`.

# %%
import argparse
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn, optim

from ipujax import poptorch
from ipujax.demo.digits import load_digits

# %% [markdown]
# ## The data
#
# MNIST would have to be downloaded. In its place are the 8 x 8 digits of ipujax's demo, enlarged
# to MNIST's 28 x 28 pixels, under MNIST's name, so that the listing need not change.


# %%
class Digits(torch.utils.data.Dataset):
    def __init__(self, folder, train, download, transform):
        x_train, y_train, x_test, y_test = load_digits()
        images, labels = (x_train, y_train) if train else (x_test, y_test)
        small = torch.from_numpy(images)[:, None]
        self.images = nn.functional.interpolate(small, size=(28, 28), mode="bilinear")
        self.labels = torch.from_numpy(labels).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


torchvision = SimpleNamespace(datasets=SimpleNamespace(MNIST=Digits))

figure, axes = plt.subplots(1, 8, figsize=(12, 2))
digits = Digits("mnist_data/", train=True, download=True, transform=None)
for axis, (image, label) in zip(axes, digits, strict=False):
    axis.imshow(image[0], cmap="gray")
    axis.set_title(int(label))
    axis.axis("off")
plt.show()

# %% [markdown]
# ## The model
#
# Any `nn.Module`. What differs from a script for GPUs is that the loss is computed in `forward`,
# so that it is on the IPU, too.


# %%
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 3), nn.MaxPool2d(2), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(16, 32, 3), nn.MaxPool2d(2), nn.ReLU())
        self.layer3 = nn.Sequential(nn.Flatten(), nn.Linear(800, 64), nn.ReLU())
        self.layer4 = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))


# %%
class TrainingModelWithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.CrossEntropyLoss()

    def forward(self, args, labels=None):
        output = self.model(args)
        if labels is None:
            return output
        return output, self.loss(output, labels)


def accuracy(predictions, labels):
    _, ind = torch.max(predictions, 1)
    # provide labels only for samples, where prediction is available
    labels = labels[-predictions.size()[0] :]
    accuracy = torch.sum(torch.eq(ind, labels)).item() / labels.size(0) * 100.0
    return accuracy


# %% [markdown]
# ## The listing
#
# `deviceIterations(10)` makes ten weight updates in each call: the loader gives ten batches at
# once, and the host is asked for data a tenth as often. The outputs of training are those of the
# last of these batches, which is what `accuracy` allows for.

# %%
torch.manual_seed(0)

parser = argparse.ArgumentParser(description="MNIST training in PopTorch")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--test-batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--device-iterations", type=int, default=10)
args = parser.parse_args([])

opts = poptorch.Options().deviceIterations(args.device_iterations)
training_data = poptorch.DataLoader(
    opts,
    torchvision.datasets.MNIST("mnist_data/", train=True, download=True, transform=None),
    batch_size=args.batch_size,
    shuffle=True,
    drop_last=True,
)
test_data = poptorch.DataLoader(
    poptorch.Options(),
    torchvision.datasets.MNIST("mnist_data/", train=False, download=True, transform=None),
    batch_size=args.test_batch_size,
    shuffle=True,
    drop_last=True,
)

# %% [markdown]
# The wrapper for training owns an optimizer; the one for inference shares the module.

# %%
model = Network()
training_model = TrainingModelWithLoss(model)
optimizer = optim.SGD(model.parameters(), lr=args.lr)
training_model = poptorch.trainingModel(training_model, opts, optimizer=optimizer)
inference_model = poptorch.inferenceModel(model)

# %%
# Run training
losses_seen = []
for _ in range(args.epochs):
    for data, labels in training_data:
        preds, losses = training_model(data, labels)
        losses_seen.append(losses.item())

# Detach the training model so that the same IPU could be used for validation
training_model.detachFromDevice()

# Run validation
sum_acc = 0.0
with torch.no_grad():
    for data, labels in test_data:
        output = inference_model(data)
        sum_acc += accuracy(output, labels)
print(f"Accuracy on test set: {sum_acc / len(test_data):.2f}%")

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(losses_seen)
axes.set(xlabel="call (ten weight updates)", ylabel="loss of the last batch", xlim=0, ylim=0)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# `model` is still the owner of its parameters: wherever PyTorch reads them, it sees what the IPU
# has learned. So the same validation in plain PyTorch gives the same accuracy.

# %%
with torch.no_grad():
    accuracies = [accuracy(model(data), labels) for data, labels in test_data]
print(f"Accuracy of PyTorch itself: {np.mean(accuracies):.2f}%")

# %% [markdown]
# ## Four ways to train the same
#
# A weight update of 32 digits can be one batch; four batches whose gradients are added up; four
# replicas of one batch each; or a pipeline of two IPUs, whose stages begin where a `Block` does.
# The losses are those of PyTorch, whichever it is.


# %%
def batches(count, seed=1):
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(digits)))
    for number in range(count):
        rows = order[(torch.arange(32) + 32 * number) % len(digits)]
        yield digits.images[rows], digits.labels[rows]


# %% [markdown]
# With PyTorch itself, and with PopTorch under any options.


# %%
def fresh():
    torch.manual_seed(1)
    return TrainingModelWithLoss(Network())


def with_pytorch():
    own = fresh()
    sgd = optim.SGD(own.parameters(), lr=0.1)
    for images, labels in batches(30):
        _, loss = own(images, labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        yield loss.item()


def with_poptorch(options, prepare=lambda own: own):
    own = prepare(fresh())
    sgd = optim.SGD(own.parameters(), lr=0.1)
    wrapped = poptorch.trainingModel(own, options.outputMode(poptorch.OutputMode.All), sgd)
    try:
        for images, labels in batches(30):
            yield wrapped(images, labels)[1].mean().item()
    finally:
        print(str(wrapped.report()).splitlines()[0])
        wrapped.destroy()


# %% [markdown]
# What differs are options, and for the pipeline where its two blocks begin.


# %%
def accumulated():
    options = poptorch.Options()
    options.Training.gradientAccumulation(4)
    return options


def pipelined(own):
    own.model.layer1 = poptorch.BeginBlock(own.model.layer1, ipu_id=0)
    own.model.layer3 = poptorch.BeginBlock(own.model.layer3, ipu_id=1)
    return own


curves = {
    "PyTorch": list(with_pytorch()),
    "one batch": list(with_poptorch(poptorch.Options())),
    "accumulation": list(with_poptorch(accumulated())),
    "replicas": list(with_poptorch(poptorch.Options().replicationFactor(4))),
    "pipeline": list(with_poptorch(accumulated(), pipelined)),
}

# %% [markdown]
# The curves lie on one another, so they are drawn with ever thinner lines.

# %%
reference = np.array(curves["PyTorch"])
figure, axes = plt.subplots(figsize=(7, 3))
for width, (name, curve) in zip((9, 7, 5, 3, 1), curves.items(), strict=True):
    axes.plot(curve, linewidth=width, label=name)
    print(f"{name}: at most {np.abs(curve - reference).max():.0e} from PyTorch")
axes.set(xlabel="weight update", ylabel="loss", xlim=0)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# The last question is what an IPU would do with it: the machine model's report speaks of the
# module's own layers.

# %%
wrapped = poptorch.trainingModel(fresh(), poptorch.Options())
wrapped.compile(*next(batches(1)))
print(wrapped.report())

# %% [markdown]
# ## Try
#
# 1. Set `gradientAccumulation(8)` for the pipeline, so that the 32 digits are eight micro-batches
#    of 4. Does the loss stay that of PyTorch? What becomes of the bubble in `wrapped.report()`?
# 2. Train the listing with `deviceIterations(20)`. How many losses are seen now, and why?
