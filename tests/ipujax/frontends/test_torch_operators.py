"""PyTorch's database of operators through the front end: samples of it."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # PyTorch's database needs it

from ipujax.doors.torch.operators import ATEN

SAMPLE = (
    "abs", "add", "all", "amax", "atan2", "bitwise_xor", "clamp", "cummax", "div.floor_rounding",
    "einsum", "fft.rfft", "fmax", "isclose", "linalg.cholesky", "linalg.solve", "logaddexp",
    "logsumexp", "matmul", "max.reduction_with_dim", "median", "norm", "pow", "prod", "round",
    "special.xlog1py", "std_mean", "sum",
    "_batch_norm_with_update", "bernoulli", "max_pool2d_with_indices_backward",
    "nn.functional.cross_entropy", "nn.functional.dropout3d", "nn.functional.embedding",
    "as_strided_scatter", "combinations", "empty", "index_put", "nonzero_static", "topk",
)  # fmt: skip
EVERY = 12


@pytest.mark.sampled(0, 12)
@pytest.mark.parametrize("name", SAMPLE)
def test_operator_is_torchs(name: str) -> None:
    from tests.torch_operators.summary import is_good, line_of, run

    row = run(name, ("float32", "bool"), 1)
    assert row["counts"].get("passed")
    assert is_good(row), line_of(row)


def test_what_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.torch_operators.summary import is_good, run

    functions = dict(ATEN._functions)
    functions["aten.sin.default"] = jnp.cos, False
    functions.pop("aten.cos.default")
    monkeypatch.setattr(ATEN, "_functions", functions)
    wrong, missing = (run(name, ("float32",), 1) for name in ("sin", "cos"))
    assert not is_good(wrong)
    assert "result 0" in wrong["why"]["wrong"][0]
    assert "aten.cos.default" in missing["why"]["missing"][0]


@pytest.mark.exhaustive
def test_operators_of_every_kind_are_torchs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of twelve, since the database lists what is alike together."""
    from tests.torch_operators.__main__ import main
    from tests.torch_operators.samples import operators, subject_of

    wanted = [name for name, entry in operators().items() if subject_of(entry) != "special"]
    options = ["--dtypes", "float32", "--samples", "1", "--results", str(tmp_path / "results")]
    assert main([*options, "--", *wanted[::EVERY]]) == 0, capsys.readouterr().out
