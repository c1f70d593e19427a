"""PyTorch's operators of shapes, indexing, order and creation beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.ipujax.frontends.beside_torch import Functions, numbers, same_as_torch  # noqa: E402

I = torch.tensor([[0, 2], [1, 0]])  # noqa: E741
OFFSETS = torch.tensor([[0, 1, 4], [0, 2, 4], [0, 4, 4]])
GROUPS: dict[str, list[Any]] = {
    "shapes": [
        lambda x: x.view(2, -1),
        lambda x: x.flatten(1),
        lambda x: x.unflatten(2, (2, 2)),
        lambda x: x.permute(2, 0, 1),
        lambda x: x.movedim(0, -1),
        lambda x: x.mT,
        lambda x: x.unsqueeze(1).squeeze(),
        lambda x: x.expand(5, 2, 3, 4),
        lambda x: x.roll(1),
        lambda x: x.repeat(2, 1, 2),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.flip(0, 2),
        lambda x: x.roll((1, -1), (0, 2)),
        lambda x: x.rot90(1, (1, 2)),
        lambda x: x.tile(2),
    ],
    "joining": [
        lambda x: torch.cat([x, x.new_zeros(0), x * 2], 1),
        lambda x: torch.stack([x, x], -1),
        lambda x: x.split((1, 2), 1),
        lambda x: x.chunk(3, -1),
        lambda x: x.tensor_split(3, 2),
        lambda x: x.tensor_split((1, 3), 2),
        lambda x: x.unbind(1),
        lambda x: x.hsplit(3),
        lambda x: torch.vstack([x, x]),
        lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="ij"),
        lambda x: torch.cartesian_prod(x[0, 0], x[0, 1]),
        lambda x: torch.block_diag(x[0], x[1]),
        lambda x: torch.combinations(x[0, 0], 3),
        lambda x: torch.combinations(x[0, 0], with_replacement=True),
    ],
    "indexing": [
        lambda x: x[:, I],
        lambda x: x[I % 2, :, I],
        lambda x: x[..., 1::2],
        lambda x: x[-1, 1],
        lambda x: x.index_select(1, I[0]),
        lambda x: x.take(I),
        lambda x: x.narrow(2, 1, 2),
        lambda x: x[0].gather(1, I),
        lambda x: x[0].take_along_dim(I[:1].T, 0),
        lambda x: torch.where(x > 0, x.log(), 0),
        lambda x: x.masked_fill(x > 0, 7),
        lambda x: x.masked_scatter(x > 0, x * 2),
        lambda x: torch.isin(I, I[0]),
        lambda x: torch.nonzero_static(x > 0, size=30),
        lambda x: torch.nonzero_static(x[:, :0], size=2),
    ],
    "scattering": [
        lambda x: x[0].index_put((I[1], I[0]), x[0, 0, :2]),
        lambda x: x[0].index_put((I * 0,), x[1, :2, :2, None] * x[0, 0], accumulate=True),
        lambda x: x[0].index_put((I[0] * 0,), x[1, :2]),  # two values at one place
        lambda x: x.masked_fill(x > 0, 0).index_put((x > 0,), x[0, 0, 0]),
        lambda x: x[0].scatter(1, I, x[1, :2, :2]),
        lambda x: x[0].scatter_add(1, I * 0, x[1, :2, :2]),
        lambda x: x[0].scatter(1, I, 3.0),
        lambda x: x.index_add(1, I[0], x[:, 1:], alpha=2),
        lambda x: x.index_copy(1, I[0], x[:, 1:]),
        lambda x: x.index_fill(2, I[0], 5),
        lambda x: x.put(I, x[0, 0].view(2, 2)),
        lambda x: x[0].slice_scatter(x[1, :, :2], 1, 0, 4, 2),
        lambda x: x.select_scatter(x[0], 0, 1),
        lambda x: x[0].diagonal_scatter(x[1, 1, :3], 1),
        lambda x: x.as_strided((2, 2), (3, 1), 1),
        lambda x: (x > 0).index_add(1, I[0], x[:, 1:] < 0),
    ],
    "reducing": [
        lambda x, r=reduce, own=own: x[0].scatter_reduce(
            1, (x[1] > 0).long(), x[1].exp(), r, include_self=own
        )
        for reduce in ("sum", "mean", "prod", "amax", "amin")
        for own in (True, False)
    ],
    "segments": [
        lambda x, r=reduce, i=initial: (
            torch.segment_reduce(x[0], r, lengths=torch.tensor([2, 0, 1]), initial=i),
            torch.segment_reduce(x[1], r, offsets=OFFSETS, axis=1, initial=i),
        )
        for reduce, initial in (
            ("sum", None),
            ("mean", None),
            ("mean", 2),
            ("prod", 2),
            ("max", None),
            ("min", 0.1),
        )
    ],
    "diagonals": [
        lambda x: x.diagonal(1, 1, 2),
        lambda x: x.diag_embed(1),
        lambda x: x[0].diag(-1),
        lambda x: x.tril(-1),
        lambda x: x.triu(1),
        lambda x: x[0].trace(),
        lambda x: x[0, 0].diag(),
    ],
    "order": [
        lambda x: x.sort(1, descending=True),
        lambda x: x.topk(2),
        lambda x: x.topk(2, 1, largest=False),
        lambda x: x.kthvalue(2, 1),
        lambda x: x.msort(),
        lambda x: x.round().argsort(stable=True),
        lambda x: torch.searchsorted(x.sort(-1)[0].detach(), x.detach()),
        lambda x: x.histc(5, -1, 1),
        lambda x: torch.bucketize(x.detach(), torch.tensor([-0.5, 0.0, 0.5]), right=True),
    ],
    "windows": [
        lambda x: x.unfold(2, 3, 1),
        lambda x: torch.nn.functional.pad(x, (1, -1, 2, 0), value=2.0),
        *(
            lambda x, m=mode: torch.nn.functional.pad(x, (1, 2), m)
            for mode in ("reflect", "replicate", "circular")
        ),
        lambda x: torch.nn.functional.unfold(x[None], 2, padding=1, stride=2),
        lambda x: torch.nn.functional.fold(x[0].T, (2, 4), (2, 2)),
    ],
    "creation": [
        lambda x: torch.arange(1, 7, 2) + x[0, 0, 0],
        lambda x: torch.linspace(0, 1, 5) * x[0, 0, 0],
        lambda x: torch.logspace(0, 2, 3, dtype=x.dtype),
        lambda x: torch.eye(2, 3),
        lambda x: torch.full((2,), 3),
        lambda x: x.new_full((2,), 3),
        lambda x: torch.zeros_like(x),
        lambda x: torch.tril_indices(3, 3),
        lambda x: x.new_ones(2),
        lambda x: torch.empty(2).fill_(4),
        lambda x: torch.linspace(0, 7, 50, dtype=torch.int64),
        lambda x: torch.ones(2, 2).bool(),
    ],
    "copies": [
        lambda x: x.clone() * x.detach(),
        lambda x: x.to(torch.float64),
        lambda x: x.int(),
        lambda x: x.type_as(I),
        lambda x: x.detach().clone().resize_(3, 5),
        lambda x: x.contiguous(),
        lambda x: torch.view_as_complex(x.view(-1, 2)),
        lambda x: torch.view_as_real(torch.complex(x, x)),
        lambda x: x.view(torch.int32),
    ],
    "counts": [
        lambda x: torch.bincount(x.abs().long().flatten(), minlength=6),
        lambda x: x.abs().int().flatten().bincount(minlength=6),
        lambda x: torch.bincount(x.abs().long().flatten(), x.detach().flatten(), 6) + x.sum(),
    ],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("group", GROUPS)
def test_operators_are_torchs(group: str) -> None:
    x = numbers(2, 3, 4)
    same_as_torch(Functions(*GROUPS[group]), x)


def test_what_has_the_factor_0_does_not_count() -> None:
    none = torch.full((2, 2), torch.nan)
    same_as_torch(
        Functions(
            lambda x: torch.addmv(x[0], none, none[0], alpha=0),
            lambda x: torch.addmm(none, x, x, beta=0),
        ),
        numbers(2, 2),
    )
