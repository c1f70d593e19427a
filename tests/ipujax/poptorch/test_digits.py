"""Training on handwritten digits gives the loss curve of PyTorch."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from ipujax.demo.digits import load_digits  # noqa: E402

STEPS, BATCH = 200, 16


class Digits(torch.nn.Module):
    """A convolutional classifier and its loss; smooth, as kinks make more of a rounding."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.GELU(),
            torch.nn.AvgPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(128, 32),
            torch.nn.Tanh(),
            torch.nn.Linear(32, 10),
        )

    def forward(self, images, labels):
        scores = self.layers(images)
        return scores, torch.nn.functional.cross_entropy(scores, labels)


@pytest.mark.exhaustive
def test_200_steps_give_the_loss_curve_of_pytorch():
    torch.manual_seed(0)
    theirs = Digits().train()
    ours = copy.deepcopy(theirs)
    batches = _batches()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)
    expected = [_step(theirs, optimizer, *batch) for batch in batches]
    training = poptorch.trainingModel(
        ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.05, momentum=0.9)
    )
    curve = [float(training(*batch)[1].detach()) for batch in batches]
    assert expected[-1] < 0.2 < 2 < expected[0]
    np.testing.assert_allclose(curve, expected, atol=1e-3)
    theirs_after = theirs.state_dict()
    for name, value in ours.state_dict().items():
        np.testing.assert_allclose(value, theirs_after[name], atol=1e-3, err_msg=name)


def _batches():
    images, labels, _, _ = load_digits()
    order = np.random.RandomState(1).randint(len(images), size=(STEPS, BATCH))
    return [
        (torch.from_numpy(images[rows])[:, None], torch.from_numpy(labels[rows]).long())
        for rows in order
    ]


def _step(module, optimizer, images, labels):
    optimizer.zero_grad()
    _, loss = module(images, labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())
