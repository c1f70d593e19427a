"""What programs replace while a module is traced."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `torch` is not installed")

from ipujax import poptorch  # noqa: E402
from ipujax.poptorch._poplar_executor import _OverwriteContextManager  # noqa: E402


def test_a_registered_manager_replaces_functions_for_the_trace_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = SimpleNamespace(double=lambda x: x * 0)

    class Manager:
        def replace(self) -> None:
            self.own, library.double = library.double, lambda x: x + x

        def restore(self) -> None:
            library.double = self.own

    monkeypatch.setattr(_OverwriteContextManager, "registered", [])
    for _ in range(2):
        _OverwriteContextManager.registerSubsitutionManager(Manager)
    assert _OverwriteContextManager.registered == [Manager]

    class Doubling(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return library.double(x)

    x = torch.tensor([1.0, 2.0])
    assert poptorch.inferenceModel(Doubling())(x).tolist() == [2.0, 4.0]
    assert library.double(x).tolist() == [0.0, 0.0]


def test_a_module_is_loaded_by_its_loader_without_a_name() -> None:
    from ipujax.standin.finder import _Finder

    finder = _Finder("of_the_original", "ipujax.poptorch")
    spec = finder.find_spec("of_the_original.enums", None)
    assert spec is not None
    assert spec.loader is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.meta_path", [finder, *sys.meta_path])
        module = spec.loader.load_module()  # pyright: ignore[reportCallIssue]
    assert module is importlib.import_module("ipujax.poptorch.enums")
