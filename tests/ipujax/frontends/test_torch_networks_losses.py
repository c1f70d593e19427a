"""Loss functions of PyTorch: values and gradients are PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
F: Any = torch.nn.functional

from tests.ipujax.frontends.beside_torch import Functions, numbers, same_as_torch  # noqa: E402

REDUCTIONS = ("mean", "sum", "none")
SIGNS = torch.tensor([1.0, -1, 1, -1])


def reductions(function: Any, **options: Any) -> Functions:
    return Functions(
        *(
            lambda *inputs, r=reduction: function(*inputs, reduction=r, **options)
            for reduction in REDUCTIONS
        )
    )


@pytest.mark.exhaustive
def test_of_differences() -> None:
    def all_of(x: Any, y: Any, reduction: str) -> Any:
        return (
            F.mse_loss(x, y, reduction=reduction), F.l1_loss(x, y, reduction=reduction),
            F.smooth_l1_loss(x, y, reduction=reduction, beta=0.7),
            F.smooth_l1_loss(x, y, reduction=reduction, beta=0.0),
            F.huber_loss(x, y, reduction=reduction, delta=0.6),
        )  # fmt: skip

    same_as_torch(reductions(all_of), numbers(3, 4), numbers(3, 4, seed=1))


@pytest.mark.filterwarnings("ignore:reduction")
def test_of_probabilities() -> None:
    weight, positive = torch.tensor([0.5, 1, 2, 1]), torch.tensor([1.0, 3, 2, 1])

    def all_of(x: Any, y: Any, reduction: str) -> Any:
        p = torch.sigmoid(x)
        return (
            F.binary_cross_entropy(p, y, weight, reduction=reduction),
            F.binary_cross_entropy_with_logits(
                x, y, weight, reduction=reduction, pos_weight=positive
            ),
            F.kl_div(x, y, reduction=reduction),
            F.kl_div(x, y, reduction=reduction, log_target=True),
            F.poisson_nll_loss(x, y * 4, reduction=reduction, full=True),
            F.poisson_nll_loss(p, y, log_input=False, reduction=reduction),
        )

    target = torch.tensor([[0.0, 1, 0.3, 0.6], [1, 0, 0.5, 0.9]])
    same_as_torch(reductions(all_of), numbers(2, 4), target)


def test_binary_cross_entropy_is_bounded() -> None:
    x = torch.tensor([0.0, 1, 0, 1]).requires_grad_()
    same_as_torch(reductions(F.binary_cross_entropy), x, torch.tensor([0.0, 1, 1, 0]))


@pytest.mark.exhaustive
def test_of_signs() -> None:
    def all_of(x: Any, y: Any, reduction: str) -> Any:
        return (
            F.hinge_embedding_loss(x[:, 0], SIGNS, margin=0.4, reduction=reduction),
            F.margin_ranking_loss(x[:, 0], y[:, 0], SIGNS, 0.3, reduction=reduction),
            F.cosine_embedding_loss(x, y, SIGNS, 0.1, reduction=reduction),
            F.soft_margin_loss(x[:, 0], SIGNS, reduction=reduction),
            F.triplet_margin_loss(x, y, x * 0.5, swap=True, reduction=reduction),
        )

    same_as_torch(reductions(all_of), numbers(4, 3), numbers(4, 3, seed=1))


@pytest.mark.exhaustive
def test_of_classes() -> None:
    weight = torch.tensor([0.5, 1.0, 2.0, 0.3])

    def all_of(x: Any, y: Any, reduction: str) -> Any:
        return (
            F.cross_entropy(x, y, reduction=reduction, ignore_index=2),
            F.cross_entropy(x, y, weight, reduction=reduction, label_smoothing=0.2),
            F.cross_entropy(x, x.detach().softmax(1), weight, reduction=reduction),
            F.nll_loss(x, y, weight, reduction=reduction, ignore_index=1),
            F.multi_margin_loss(x, y, p=2, margin=0.7, weight=weight, reduction=reduction),
        )

    same_as_torch(reductions(all_of), numbers(5, 4), torch.tensor([0, 1, 2, 3, 2]))


@pytest.mark.skipif(
    not hasattr(F, "linear_cross_entropy"), reason="PyTorch has it since its release 2.13"
)
def test_of_classes_in_chunks() -> None:
    """Which save PyTorch memory, and compute gradients that need no other derivative."""
    chunks = nn.LinearCrossEntropyOptions(batch_chunk_size=2)

    def loss(x: Any, y: Any, reduction: str) -> Any:
        table = x.reshape(4, 5)[:, :3]
        return F.linear_cross_entropy(x[:, :3], table, y, reduction=reduction, options=chunks)

    same_as_torch(reductions(loss), numbers(5, 4), torch.tensor([0, 1, 2, 3, 2]))


@pytest.mark.exhaustive
def test_of_images_of_classes() -> None:
    target = torch.tensor([[[0, 1], [2, -100]], [[2, 2], [1, 0]]])

    def all_of(x: Any, y: Any, reduction: str) -> Any:
        return (
            F.cross_entropy(x, y, reduction=reduction, label_smoothing=0.1),
            F.nll_loss(x, y, reduction=reduction),
            F.cross_entropy(x[0, :, 0, 0], y[0, 0, 0], reduction=reduction),
        )

    same_as_torch(reductions(all_of), numbers(2, 3, 2, 2), target)


def test_of_several_labels() -> None:
    targets = torch.tensor([[3, 0, -1, 1], [1, -1, 0, 2]])
    same_as_torch(reductions(F.multilabel_margin_loss), numbers(2, 4), targets)


@pytest.mark.exhaustive
def test_of_sequences() -> None:
    """With repeated labels, a short input, and one that cannot give its labels."""
    targets = torch.tensor([[1, 1, 2], [3, 2, 1], [1, 1, 1]])

    def all_of(x: Any, y: Any, reduction: str) -> Any:
        logs = F.log_softmax(x, 2)
        lengths = (6, 5, 3), (3, 2, 3)
        return (
            F.ctc_loss(logs, y, *lengths, reduction=reduction, zero_infinity=True),
            F.ctc_loss(x, y, *lengths, reduction=reduction, zero_infinity=True),
            F.ctc_loss(
                logs, y.flatten()[:8], *lengths, blank=0, reduction=reduction, zero_infinity=True
            ),
        )

    same_as_torch(reductions(all_of), numbers(6, 3, 4), targets, limit=1e-4)


def test_gaussian_nll() -> None:
    """Whose check of the variances cannot be traced."""
    variances = torch.tensor([[0.5, 1e-9], [2.0, 1.0]]).requires_grad_()
    module = reductions(F.gaussian_nll_loss, full=True, eps=1e-2)
    same_as_torch(module, numbers(2, 2), numbers(2, 2, seed=1), variances)
