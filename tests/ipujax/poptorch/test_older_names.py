"""Names that programs for the original call, beside those of its documentation."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from tests.ipujax.poptorch.modules import Regression, batch  # noqa: E402


class Cast(torch.nn.Module):
    """A product in float32 of a tensor in float16, in scopes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        torch.ops.poptorch.push_name_scope("projection")
        with poptorch.Attribute(__outline={"layer": "embedding"}):
            y = self.layer(torch.ops.poptorch.internal_cast(x, "FLOAT"))
        torch.ops.poptorch.pop_name_scope()
        return torch.ops.poptorch.internal_cast(y, "FLOAT16")


def test_the_namespace_of_operators_has_what_programs_call() -> None:
    module, x = Cast(), torch.ones(2, 4, dtype=torch.float16)
    inference = poptorch.inferenceModel(module)
    found, expected = inference(x), module(x)
    assert found.dtype == expected.dtype == torch.float16
    torch.testing.assert_close(found, expected)
    report = str(inference.report())
    assert "projection" in report
    assert not re.search("projection.*projection", report)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch.ops.poptorch.internal_cast(torch.ones(1), "INT"), "FLOAT or FLOAT16"),
        (lambda: poptorch._impl.internal_cast(torch.ones(1), torch.int32), "torch.half"),
        (lambda: poptorch.Attribute(__outline="layer"), "__outline .* must be a dictionary"),
    ],
)
def test_what_is_missing_is_said(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(poptorch.Error, match=message):
        call()


def test_parameters_of_groups_of_replicas_are_refused() -> None:
    module = Regression()
    training = poptorch.trainingModel(module, optimizer=torch.optim.SGD(module.parameters(), 0.1))
    with pytest.raises(poptorch.Error, match="replicaGrouping: all replicas have the same"):
        training.first.weight.replicaGrouping(
            poptorch.CommGroupType.Orthogonal, 2, poptorch.VariableRetrievalMode.OnePerGroup
        )


def compiled(monkeypatch: pytest.MonkeyPatch, is_terminal: bool, *shown: bool) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    options = poptorch.Options().showCompilationProgressBar(*shown)
    poptorch.inferenceModel(Regression(), options).compile(*batch())


def test_a_terminal_shows_how_far_a_compilation_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(monkeypatch, True)
    assert "Graph compilation: 100%" in capsys.readouterr().err
    compiled(monkeypatch, True, False)
    compiled(monkeypatch, False)
    assert not capsys.readouterr().err
