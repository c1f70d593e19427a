"""Models of torchvision, transformers and timm, against PyTorch: a sample of the sweep."""

import importlib.util

import pytest

pytest.importorskip("torch", reason="models of PyTorch need the extra `torch`")

from torch import nn

from tests.torch_models.catalog import FAMILIES
from tests.torch_models.compare import Error, compare, difference
from tests.torch_models.example import shortened

QUICK = ["transformers/BertForMaskedLM"]
# Each of another kind: nine to fifteen seconds of a core for images, three to ten for the others.
EXHAUSTIVE = [
    "timm/vit_tiny_patch16_224",
    "timm/resnest14d",
    "transformers/LlamaForCausalLM",
    "transformers/T5ForConditionalGeneration",
]
COMPLETE = [
    "torchvision/convnext_tiny",
    "torchvision/swin_t",
    "transformers/DebertaForMaskedLM",
    "transformers/WhisperForConditionalGeneration",
]


@pytest.mark.parametrize(
    "model",
    [
        *QUICK,
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in EXHAUSTIVE),
        *(pytest.param(name, marks=pytest.mark.complete) for name in COMPLETE),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_model_gives_what_pytorch_gives(model):
    library, name = model.split("/")
    for needed in {library, "torchvision"}:
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    result = compare(library, name)
    assert result.agrees, result


def test_differences_are_relative_to_the_largest_of_an_array_and_never_of_nothing():
    ours = {"weight": [1.0, 2.0], "bias": [1e-9]}
    theirs = {"weight": [1.0, 2.002], "bias": [-1e-9]}
    error, name = difference(ours, theirs)
    assert name == "weight"
    assert error == pytest.approx(1e-3, rel=1e-2)
    assert difference({"bias": [float("nan")]}, {"bias": [1.0]})[1] == "bias"


@pytest.mark.parametrize(
    ("error", "small"),
    [
        (Error(1e-4, "weight"), True),
        (Error(2e-4, "weight"), False),
        (Error(2e-4, "weight", ours=2e-4, theirs=1e-4), True),
        (Error(2e-4, "weight", ours=3e-4, theirs=1e-4), False),
        (Error(3e-2, "weight", ours=2e-2, theirs=2e-2), False),
        (Error(float("nan"), "weight", ours=float("nan"), theirs=1e-4), False),
    ],
)
def test_errors_are_small_beside_the_limit_or_pytorchs_own_rounding(error, small):
    assert error.is_small is small


def test_shortened_models_have_one_of_each_run_of_equal_blocks():
    def block(width):
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 4), nn.Identity())

    stages = nn.Sequential(block(4), block(4), block(4), block(8), block(4), block(4), nn.ReLU())
    shortened(stages)
    assert [name for name, _ in stages.named_children()] == ["0", "3", "4", "6"]
    assert [len(stage) for stage in stages[:3]] == [4, 4, 4]  # pyright: ignore[reportGeneralTypeIssues]


def test_all_libraries_have_models():
    assert all(len(examples()) >= 20 for examples in FAMILIES.values())
