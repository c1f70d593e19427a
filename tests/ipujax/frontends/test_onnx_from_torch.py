"""Models that PyTorch exports to ONNX, against PyTorch."""

import warnings

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")
pytest.importorskip("onnxscript", reason="PyTorch exports with onnxscript")
pytest.importorskip("torch", reason="needs the extra torch")

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ipujax.frontends import from_onnx


class Block(torch.nn.Module):
    """What image models and transformers are made of, in small."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
        )
        self.norm = torch.nn.LayerNorm(4)
        self.mix = torch.nn.Linear(4, 12)
        self.up = torch.nn.ConvTranspose2d(4, 2, 2, stride=2)

    def forward(self, x):
        words = self.stem(x).flatten(2).transpose(1, 2)
        q, k, v = self.mix(self.norm(words)).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        heads = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        words = words + heads.transpose(1, 2).flatten(2)
        return self.up(words.transpose(1, 2).unflatten(2, x.shape[2:]))


def exported(module, *args):
    with warnings.catch_warnings():  # of PyTorch about itself
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, args, dynamo=True, verbose=False)
    assert program is not None
    return program.model_proto


@pytest.mark.exhaustive
def test_a_module():
    torch.manual_seed(0)
    module = Block().eval()
    x = torch.randn(2, 2, 3, 4)
    model = from_onnx(exported(module, x))
    wanted = module(x.requires_grad_())
    wanted.square().sum().backward()

    def loss(variables, x):
        (y,), _ = model.apply(variables, x)
        return jnp.sum(y**2), y

    both = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, y), (by_variable, by_x) = both(model.variables, jnp.asarray(x.detach().numpy()))
    np.testing.assert_allclose(y, wanted.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_x, x.grad, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        by_variable["up.weight"], module.up.weight.grad, rtol=1e-3, atol=1e-4
    )
    assert {"norm", "mix", "up"} <= {part.name for part in model.parts}
