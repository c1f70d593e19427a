"""Attention and recurrent layers of PyTorch: values and gradients are PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
F: Any = torch.nn.functional

from ipujax.frontends import from_torch  # noqa: E402
from tests.ipujax.frontends.beside_torch import Functions, numbers, same_as_torch  # noqa: E402

attention = F.scaled_dot_product_attention


def test_attention() -> None:
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    bias = numbers(3, 3, seed=3).detach()
    same_as_torch(
        Functions(
            attention,
            lambda q, k, v: attention(q, k, v, is_causal=True, scale=0.3),
            lambda q, k, v: attention(q, k, v, mask),
            lambda q, k, v: attention(q, k, v, bias),
            lambda q, k, v: attention(q, k[:, :1], v[:, :1], enable_gqa=True),
        ),
        numbers(2, 2, 3, 4), numbers(2, 2, 3, 4, seed=1), numbers(2, 2, 3, 4, seed=2),
    )  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
def test_multihead_attention(training: bool) -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            mask = torch.tensor([[False, False, True], [False, False, False]])
            return self.layer(x, x, x, key_padding_mask=mask), self.layer(x, x, x)[0]

    same_as_torch(Attends().train(training), numbers(2, 3, 4))


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.sampled(2)
def test_transformer_layer_in_evaluation(options: Any, frozen: bool) -> None:
    """Frozen, PyTorch makes one operator of it."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, **options).eval()
    layer.requires_grad_(not frozen)
    same_as_torch(layer, numbers(2, 3, 4).requires_grad_(not frozen))


def test_transformer_with_a_mask_among_its_inputs() -> None:
    """PyTorch looks whether the mask is causal, which a traced module cannot."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    same_as_torch(nn.TransformerEncoder(layer, 1), numbers(2, 3, 4), mask)


RECURRENT = [
    (nn.LSTM(3, 4, 2), (5, 2, 3)),
    (nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True, bias=False), (2, 5, 3)),
    (nn.LSTM(3, 4, 2, proj_size=2, bidirectional=True), (5, 2, 3)),
    (nn.GRU(3, 4, 2, bidirectional=True), (5, 2, 3)),
    (nn.GRU(3, 4, batch_first=True), (5, 3)),
    (nn.RNN(3, 4, 2, bidirectional=True, dropout=0.5).eval(), (5, 2, 3)),
    (nn.RNN(3, 4, nonlinearity="relu", bias=False), (5, 2, 3)),
]


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # of PyTorch's own speed
@pytest.mark.parametrize(("layer", "shape"), RECURRENT, ids=str)
@pytest.mark.sampled(1)
def test_recurrent_layers(layer: Any, shape: tuple[int, ...]) -> None:
    same_as_torch(layer, numbers(*shape))


@pytest.mark.parametrize("cell", [nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.RNNCell(3, 4, False)])
def test_cells(cell: Any) -> None:
    same_as_torch(cell, numbers(2, 3))


@pytest.mark.exhaustive
def test_first_states_are_given() -> None:
    layer = nn.LSTM(3, 4)

    class Given(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            return self.layer(x, (h, c))

    same_as_torch(Given(), numbers(5, 2, 3), numbers(1, 2, 4), numbers(1, 2, 4, seed=1))


def test_packed_sequences_are_refused() -> None:
    class Packs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(3, 4)

        def forward(self, x: Any) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]))
            return self.layer(packed)[1]

    with pytest.raises(ValueError, match=r"Packs|lstm\.data"):
        from_torch(Packs(), (numbers(5, 2, 3),))
