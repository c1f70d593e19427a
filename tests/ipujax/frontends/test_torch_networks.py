"""Layers of PyTorch: values, gradients and buffers are PyTorch's, in training and evaluation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
F: Any = torch.nn.functional

import ipujax as ipu  # noqa: E402
from ipujax.doors.torch import to_jax  # noqa: E402
from ipujax.frontends import from_torch  # noqa: E402
from lowering import ir, rewrite_convolutions_as_products  # noqa: E402
from tests.ipujax.frontends.beside_torch import Functions, numbers, same_as_torch  # noqa: E402

CONVOLUTIONS = [
    (nn.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
    (nn.Conv1d(4, 6, 4, padding="same", dilation=2, groups=2), (2, 4, 9)),
    (nn.Conv2d(4, 6, (3, 2), padding=(0, 1), groups=2, bias=False), (2, 4, 6, 5)),
    (nn.Conv2d(4, 4, 3, padding="valid", groups=4), (4, 6, 5)),
    (nn.Conv3d(2, 3, 2, dilation=2), (1, 2, 4, 4, 4)),
    (nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1, groups=2), (2, 4, 5)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, dilation=2), (2, 4, 4, 3)),
    (nn.ConvTranspose3d(2, 3, 2, stride=2), (2, 2, 2, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), CONVOLUTIONS, ids=str)
def test_convolutions(layer: Any, shape: tuple[int, ...]) -> None:
    same_as_torch(layer, numbers(*shape))


def test_convolution_is_one_equation() -> None:
    """What the machine model plans."""
    model = from_torch(nn.Conv2d(4, 6, 3), (torch.zeros(2, 4, 6, 5),))
    jaxpr = jax.make_jaxpr(model.apply)(model.variables, jnp.zeros((2, 4, 6, 5)))
    names = [str(eqn.primitive) for eqn in jaxpr.eqns]
    assert names.count("conv_general_dilated") == 1
    assert "transpose" not in names


SMALL = [
    (nn.Conv2d(8, 64, 3, padding=1), (2, 8, 2, 2)),  # of images smaller than filters
    (nn.Conv2d(8, 64, 3, stride=2, padding=1), (2, 8, 5, 4)),
    (nn.Conv2d(8, 64, (3, 2), padding=2, dilation=2), (1, 8, 3, 4)),
    (nn.Conv2d(8, 12, 1, stride=2), (2, 8, 5, 5)),
    (nn.ConvTranspose2d(8, 32, 3, stride=2, padding=1), (1, 8, 2, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), SMALL, ids=str)
def test_convolutions_that_cpus_run_as_products(layer: Any, shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    eager = layer(x)
    wanted = torch.autograd.grad((eager**2).sum(), [x, *layer.parameters()])
    model = from_torch(layer, (x.detach(),))

    def loss(variables: Any, x: Any) -> Any:
        return (model.apply(variables, x)[0] ** 2).sum()

    gradients = jax.grad(loss, (1, 0))
    lowered = ipu.compile(gradients).lower(model.variables, to_jax(x.detach()))
    (before,) = [
        n.kernel.jaxpr for n in ir.walk_nodes(lowered.program.body) if isinstance(n, ir.Execute)
    ]
    changed = rewrite_convolutions_as_products(lowered.program)
    (after,) = [n.kernel.jaxpr for n in ir.walk_nodes(changed.body) if isinstance(n, ir.Execute)]
    assert str(before).count("conv_general_dilated[") == 3
    assert "conv_general_dilated[" not in str(after)
    of_x, of_variables = lowered.compile()(model.variables, to_jax(x.detach()))
    mine = [of_x, *(of_variables[name] for name, _ in layer.named_parameters())]
    for one, other in zip(mine, wanted, strict=True):
        scale = float(other.abs().max())
        np.testing.assert_allclose(np.asarray(one), other.numpy(), 1e-5, 1e-5 * scale)


ACTIVATIONS = [
    nn.CELU(0.7), nn.ELU(1.2), nn.GELU(), nn.GELU("tanh"), nn.GLU(), nn.Hardshrink(),
    nn.Hardsigmoid(), nn.Hardswish(), nn.Hardtanh(-0.4, 0.6), nn.LeakyReLU(0.2), nn.LogSigmoid(),
    nn.Mish(), nn.PReLU(4, 0.3), nn.PReLU(), nn.RReLU().eval(), nn.ReLU6(), nn.SELU(), nn.SiLU(),
    nn.Softplus(2, 1), nn.Softshrink(), nn.Threshold(0.1, 2.0), nn.Softmax(1), nn.LogSoftmax(0),
    nn.Softmax2d(),
]  # fmt: skip


def test_activations() -> None:
    # With bounds of the pieces among the numbers, where derivatives of one side count.
    x = numbers(2, 4, 3, 6).detach() * 3
    x[0, 0, 0] = torch.tensor([0.0, 3, -3, 0.5, -0.5, 6])
    same_as_torch(Functions(*ACTIVATIONS), x.requires_grad_())


def test_activations_in_place() -> None:
    def bent(x: Any) -> Any:
        return F.hardtanh(x * 2, inplace=True), F.elu(x * 2, inplace=True)

    same_as_torch(Functions(bent), numbers(3, 4))


def test_softmax_in_another_dtype() -> None:
    x = numbers(3, 4).detach().half().requires_grad_()
    same_as_torch(Functions(lambda x: F.softmax(x, 1, dtype=torch.float32)), x, limit=1e-3)


@pytest.mark.exhaustive
def test_pooling() -> None:
    x = numbers(2, 3, 7, 8)
    same_as_torch(
        Functions(
            nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(2, 2, dilation=2),
            nn.MaxPool2d(3, 2, 1, return_indices=True), nn.AvgPool2d(3, 2, 1, ceil_mode=True),
            nn.AvgPool2d((3, 2), 2, 1, count_include_pad=False),
            nn.AvgPool2d(2, divisor_override=3), nn.AdaptiveAvgPool2d((3, None)),
            nn.AdaptiveAvgPool2d((7, 2)), nn.AdaptiveMaxPool2d((3, 5), return_indices=True),
        ),
        x,
    )  # fmt: skip


def test_pooling_of_lines_and_volumes() -> None:
    same_as_torch(
        Functions(
            lambda x, y: F.max_pool3d(x, 2, 1), lambda x, y: F.avg_pool3d(x, 2, 2, 1),
            lambda x, y: F.adaptive_avg_pool3d(x, (1, 2, 3)), lambda x, y: F.max_pool1d(y, 2),
            lambda x, y: F.avg_pool1d(y, 3, 2), lambda x, y: F.adaptive_max_pool1d(y, 2),
        ),
        numbers(2, 2, 3, 4, 5), numbers(2, 2, 5),
    )  # fmt: skip


def test_unpooling_and_ties() -> None:
    def back(x: Any) -> Any:
        values, indices = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(values, indices, 2)

    x = torch.tensor([1.0, 1, 2, 2, 1, 0, 2, 2] * 2).reshape(1, 1, 4, 4).requires_grad_()
    same_as_torch(Functions(back, lambda x: F.max_pool2d(x, 2)), x)


NORMS = [
    (nn.BatchNorm1d(4), (5, 4)),
    (nn.BatchNorm2d(4, momentum=0.3), (3, 4, 2, 3)),
    (nn.BatchNorm2d(4, track_running_stats=False), (3, 4, 2, 3)),
    (nn.BatchNorm3d(2, affine=False), (3, 2, 2, 2, 2)),
    (nn.InstanceNorm1d(4), (2, 4, 5)),
    (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (3, 4, 2, 3)),
    (nn.LayerNorm((3, 4)), (2, 3, 4)),
    (nn.LayerNorm(4, bias=False), (2, 3, 4)),
    (nn.GroupNorm(2, 4), (2, 4, 3)),
    (nn.RMSNorm(4), (2, 3, 4)),
    (nn.RMSNorm((3, 4), eps=1e-3, elementwise_affine=False), (2, 3, 4)),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("layer", "shape"), NORMS, ids=str)
@pytest.mark.sampled(12)
def test_norms(layer: Any, shape: tuple[int, ...], training: bool) -> None:
    for number, tensor in enumerate((*layer.parameters(), *layer.buffers())):
        if tensor.is_floating_point():
            tensor.data = numbers(*tensor.shape, seed=number).detach().abs() + 0.5
    same_as_torch(layer.train(training), numbers(*shape) * 2 + 3, limit=1e-4)


def test_layer_norm_far_from_zero() -> None:
    x = (numbers(2, 64).detach() + 3000).requires_grad_()
    same_as_torch(nn.LayerNorm(64), x, limit=1e-3)


def test_weight_norm() -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    same_as_torch(layer, numbers(2, 3))


class Tables(nn.Module):
    """All kinds of tables of embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Embedding(6, 3)
        self.padded = nn.Embedding(6, 3, padding_idx=2, scale_grad_by_freq=True)
        self.bags = nn.ModuleList(nn.EmbeddingBag(6, 3, mode=m) for m in ("sum", "mean", "max"))

    def forward(self, indices: Any) -> Any:
        bags = [bag(indices) for bag in self.bags]
        return self.plain(indices), self.padded(indices), bags


def test_embeddings() -> None:
    same_as_torch(Tables(), torch.tensor([[0, 2, 2], [5, 0, 1]]))


def test_linear_and_bilinear() -> None:
    same_as_torch(nn.Linear(3, 4), numbers(2, 5, 3))
    same_as_torch(nn.Bilinear(3, 4, 2), numbers(5, 3), numbers(5, 4, seed=1))


def test_resampling() -> None:
    def to(mode: str, **options: Any) -> Any:
        return lambda x: F.interpolate(x, mode=mode, **options)

    same_as_torch(
        Functions(
            to("nearest", scale_factor=2), to("nearest", size=(7, 3)),
            to("nearest-exact", size=(7, 3)), to("bilinear", scale_factor=1.7),
            to("bilinear", size=(8, 3), align_corners=True), to("bicubic", size=(8, 3)),
            to("bicubic", scale_factor=0.6, align_corners=True),
            to("bilinear", size=(2, 3), antialias=True), to("bicubic", size=(3, 9), antialias=True),
            to("area", size=(2, 3)),
        ),
        numbers(1, 2, 5, 6),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.sampled(1)
def test_grids(mode: str) -> None:
    functions = [
        lambda x, g, p=padding, a=align: F.grid_sample(x, g, mode, p, a)
        for padding, align in (("zeros", True), ("border", False), ("reflection", False))
    ]
    same_as_torch(
        Functions(*functions), numbers(1, 2, 4, 5), numbers(1, 3, 2, 2, seed=1), limit=1e-4
    )


def test_grids_of_volumes() -> None:
    x, grid = numbers(1, 1, 2, 3, 2), numbers(1, 1, 2, 2, 3, seed=1)
    reflected = Functions(lambda x, g: F.grid_sample(x, g, "nearest", "reflection", True))
    same_as_torch(reflected, x, grid)


def test_affine_grid() -> None:
    same_as_torch(
        Functions(
            lambda t: F.affine_grid(t, [2, 1, 3, 4], align_corners=True),
            lambda t: F.affine_grid(t, [2, 1, 3, 4], align_corners=False),
        ),
        numbers(2, 2, 3),
    )


def test_shuffles() -> None:
    same_as_torch(
        Functions(
            nn.PixelShuffle(2), nn.ChannelShuffle(2), nn.PixelUnshuffle(1),
        ),
        numbers(2, 4, 4, 5),
    )  # fmt: skip


def test_distances() -> None:
    x = numbers(3, 4).detach()
    y = numbers(3, 4, seed=1).detach()
    y[1] = x[1]  # a distance of 0, whose derivative is 0
    same_as_torch(
        Functions(
            nn.CosineSimilarity(), nn.PairwiseDistance(), nn.PairwiseDistance(3, keepdim=True),
            lambda x, y: F.pdist(x), F.l1_loss,
        ),
        x.requires_grad_(), y.requires_grad_(), limit=1e-3,
    )  # fmt: skip


def test_table_that_renormalizes_is_refused() -> None:
    with pytest.raises(ValueError, match="embedding_renorm"):
        from_torch(nn.Embedding(4, 3, max_norm=1.0), (torch.tensor([1]),))


def test_statistics_of_halves_are_wide() -> None:
    x = (numbers(4, 64).detach() + 30).half()
    model = from_torch(nn.LayerNorm(64).half(), (x,))
    got, _ = model.apply(model.variables, to_jax(x))
    wanted = F.layer_norm(x.float(), (64,)).numpy()
    np.testing.assert_allclose(np.asarray(got, np.float32), wanted, atol=2e-3)
