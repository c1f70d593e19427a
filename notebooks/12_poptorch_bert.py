# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Pretraining a small BERT over four IPUs
#
# BERT learns language by filling in gaps: some words of a text are hidden, and the model says what
# they were. Graphcore's programs for it used PopTorch's blocks: the embeddings and each part of the
# encoder have IPUs of their own, and gradients are accumulated over many micro-batches, so that all
# IPUs have work. This notebook does the same with a model that is small enough to train within a
# minute on two cores: the module is plain PyTorch, and three lines make it a pipeline.
#
# * **You learn** to cut a PyTorch module into blocks on IPUs, to accumulate gradients over
#   micro-batches, and to see how well the pipeline is filled.
# * **It takes** ten minutes to read, and a minute to run.
# * **It needs** PyTorch, the notebook before this one, and the extras `torch` and `notebooks`.

# %%
import copy

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from ipujax import poptorch, schedules

# %% [markdown]
# ## The text
#
# Sentences of a small grammar take the place of an encyclopedia. A hidden word can be told from the
# others: the article from its noun, and the place from the animal that lives there; of the verb
# only the form.

# %%
ANIMALS = {"seal": "sea", "whale": "sea", "bear": "forest", "owl": "forest", "camel": "desert"}
VERBS = {1: ("swims", "sleeps", "hunts"), 2: ("swim", "sleep", "hunt")}
torch.manual_seed(0)
rng = np.random.default_rng(0)


def sentence():
    animal, number = rng.choice(list(ANIMALS)), rng.integers(1, 3)
    article = "the" if number == 1 else "two"
    noun = animal if number == 1 else f"{animal}s"
    return f"[cls] {article} {noun} {rng.choice(VERBS[number])} in the {ANIMALS[animal]} ."


words = sorted({word for _ in range(500) for word in sentence().split()})
vocabulary = ["[mask]", *words]
code = {word: number for number, word in enumerate(vocabulary)}
LENGTH = len(sentence().split())

print(sentence())
print(len(vocabulary), "words,", LENGTH, "in a sentence")

# %% [markdown]
# One word of each sentence is hidden. The labels of all others are -100, which PyTorch's cross
# entropy leaves out.


# %%
class Hidden(torch.utils.data.Dataset):
    def __init__(self, size):
        self.texts = np.array([[code[word] for word in sentence().split()] for _ in range(size)])
        self.gaps = rng.integers(1, LENGTH - 1, size)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        text, gap = torch.from_numpy(self.texts[index]), self.gaps[index]
        labels = torch.full_like(text, -100)
        labels[gap] = text[gap]
        shown = text.clone()
        shown[gap] = code["[mask]"]
        return shown, labels


# %% [markdown]
# ## The model
#
# The encoder is PyTorch's own. The scores of words are products with their embeddings: the last
# block reads the table that lives on the first IPU.

# %%
WIDTH, LAYERS = 32, 2


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(len(vocabulary), WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) / 10)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, text, labels=None):
        x = self.words(text) + self.positions
        for layer in self.layers:
            x = layer(x)
        scores = self.norm(x) @ self.words.weight.t()
        if labels is None:
            return scores
        return scores, nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


# %% [markdown]
# ## Four IPUs
#
# A block that begins in front of a module lasts until the next one begins. What comes before the
# first block, the embedding, is on IPU 0, each layer has an IPU, and the last block begins with the
# norm: the scores and the loss are in it.

# %%
model = Bert()
reference = copy.deepcopy(model)
for number, module in enumerate([*model.layers, model.norm], 1):
    poptorch.BeginBlock(module, ipu_id=number)

ACCUMULATION, ROWS, STEPS = 8, 8, 100
options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.All)
options.Training.gradientAccumulation(ACCUMULATION)
loader = poptorch.DataLoader(
    options, Hidden(ACCUMULATION * ROWS * STEPS), batch_size=ROWS, drop_last=True
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
training = poptorch.trainingModel(model, options, optimizer)

batches = list(loader)
losses = []
for text, labels in batches:
    _, loss = training(text, labels)
    losses.extend(loss.reshape(-1, ACCUMULATION).mean(1).tolist())

# %% [markdown]
# ## PyTorch itself
#
# The same batches, without IPUs: the gradients of all micro-batches of an update are averaged.

# %%
own = torch.optim.AdamW(reference.parameters(), lr=0.005)
expected = []
for text, labels in batches:
    for texts, answers in zip(text.chunk(2), labels.chunk(2), strict=True):
        own.zero_grad()
        parts = [
            reference(*part)[1] for part in zip(texts.split(ROWS), answers.split(ROWS), strict=True)
        ]
        mean = sum(parts) / ACCUMULATION
        mean.backward()
        own.step()
        expected.append(mean.item())

figure, axis = plt.subplots(figsize=(7, 3))
axis.plot(expected, lw=4, alpha=0.4, label="PyTorch")
axis.plot(losses, label="four IPUs")
axis.set(xlabel="weight update", ylabel="loss", xlim=0, ylim=0)
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False)
plt.show()
apart = np.abs(np.subtract(losses, expected))
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")
print(f"largest difference: {apart[:20].max():.0e} in 20 updates, {apart.max():.0e} in all")

# %% [markdown]
# ## The pipeline
#
# Each update sends eight micro-batches through four stages, forward and back. With one forward pass
# for one backward pass (1F1B), an IPU keeps the activations of as many micro-batches as there are
# stages from it to the end. Blue is a forward pass, orange a backward pass, with the number of the
# micro-batch.

# %%
schedules.one_f_one_b(4, ACCUMULATION)

# %% [markdown]
# The machine model knows how long each of them takes, and so which share of its time an IPU works
# or waits.

# %%
report = training.report()
spent = {cause: cycles / report.cycles for cause, cycles in report.breakdown.items()}
figure, axis = plt.subplots(figsize=(7, 3))
left = np.zeros(report.num_ipus)
for name, share in spent.items():
    axis.barh(range(report.num_ipus), share, left=left, label=name)
    left = left + share
axis.set(xlabel="share of the time", ylabel="IPU", yticks=range(report.num_ipus))
axis.invert_yaxis()
axis.spines[["top", "right"]].set_visible(False)
axis.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
plt.show()

# %% [markdown]
# The report speaks of the modules by the names that they have in PyTorch, such as
# `layers.1.linear1`.

# %%
print(report)

# %% [markdown]
# And at the end of a cell it shows its own views, with the timeline of all
# IPUs:

# %%
report

# %% [markdown]
# ## What it has learned
#
# The module has the trained weights already. An inference model runs it on the same IPUs, and fills
# in gaps.

# %%
inference = poptorch.inferenceModel(model.eval())
shown, answers = next(iter(torch.utils.data.DataLoader(Hidden(8), batch_size=8)))
scores = inference(shown)
guesses = scores.argmax(-1)
for text, answer, guess in zip(shown, answers, guesses, strict=True):
    gap = int((answer >= 0).nonzero()[0])
    line = " ".join(vocabulary[word] for word in text)
    print(f"{line:<42} {vocabulary[int(guess[gap])]:<8} was {vocabulary[int(answer[gap])]}")

# %% [markdown]
# ## Too few micro-batches
#
# A pipeline that is never full is refused, as PopTorch refuses it.

# %%
few = poptorch.Options()
few.Training.gradientAccumulation(4)
training.destroy()
try:
    poptorch.trainingModel(model.train(), few).compile(shown, answers)
except poptorch.Error as error:
    print(error)

# %% [markdown]
# ## Try
#
# 1. Begin the last block at `model.layers[1]` and leave out the norm's. How many IPUs does the
#    model take now, and which of them works most?
# 2. Accumulate over 16 micro-batches of 4. What does the bubble do, and is the loss still
#    PyTorch's?
