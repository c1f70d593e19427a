"""Wrong arguments of public methods are refused with errors of ours, or accepted; never bare."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.methods.instances import INSTANCES
from tests.methods.sweep import HOSTILE, Case, Outcome, cases, counted, run

QUICK = ("IPUOutfeedQueue", "PopnnLSTM", "Options", "DataFlow", "IPUConfig", "Report", "Builder")
ALLOWED = 0.005


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")


@pytest.mark.parametrize("owner", QUICK)
def test_some_methods_refuse_what_they_cannot_take(owner: str) -> None:
    for number, case in enumerate(cases(owner)):
        name = [*HOSTILE][number % len(HOSTILE)]
        outcome = run(case, HOSTILE[name])
        assert outcome.kind != "bare", f"{case} = {name}: {outcome.said}"


@pytest.mark.exhaustive
def test_hardly_any_error_of_any_method_is_bare() -> None:
    bare: list[str] = []

    def tell(case: Case, value: str, outcome: Outcome) -> None:
        if outcome.kind == "bare":
            bare.append(f"{case} = {value}: {outcome.said[:200]}")

    counts = counted([*INSTANCES], tell)
    print(counts)
    assert len(bare) <= ALLOWED * sum(counts.values()), "\n".join(bare)
