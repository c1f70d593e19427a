"""Models of torchvision, transformers and timm, against PyTorch: a sample of the sweep."""

import importlib.util

import pytest

pytest.importorskip("torch", reason="models of PyTorch need the extra `torch`")

from tests.torch_models.catalog import FAMILIES
from tests.torch_models.compare import compare, difference

QUICK = ["transformers/BertForMaskedLM"]
MORE = [
    "timm/vit_tiny_patch16_224",
    "torchvision/convnext_tiny",
    "torchvision/swin_t",
    "transformers/DebertaForMaskedLM",
    "transformers/LlamaForCausalLM",
    "transformers/T5ForConditionalGeneration",
    "transformers/WhisperForConditionalGeneration",
    "timm/resnest14d",
]


@pytest.mark.parametrize(
    "model", [*QUICK, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in MORE)]
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


def test_all_libraries_have_models():
    assert all(len(examples()) >= 20 for examples in FAMILIES.values())
