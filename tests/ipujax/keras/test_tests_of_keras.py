"""The tests of the installed Keras, each in the scope of a strategy."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from tests.harness import ROOT

pytest.importorskip("keras")

MISSING = ("ModuleNotFoundError", "ImportError")
REFUSED = ("run_eagerly=True", "keras.distribution is set")
DIFFERENT = {
    # It asks that variables have no values meanwhile. Ours keep them, so that errors cost none.
    "test_fit_eval_flow_for_jax_model_weights",
}
GOES_ON = {
    # Keras begins an interrupted epoch anew, and counts its first batches twice. Ours goes on with
    # the next batch, so that the weights are those of an undisturbed training.
    "test_best_case_step",
}
SAMPLE = "test_fit_flow_jit or test_predict_flow_struct_jit or test_on_batch_methods_jit"


def file_of_keras(name: str) -> Path:
    """A file of tests that Keras brings."""
    found = importlib.util.find_spec("keras")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "src" / name
    if not path.exists():
        pytest.skip(f"Keras was installed without {name}")
    return path


def results(name: str, folder: Path, chosen: str = "") -> dict[str, str | None]:
    """The tests of a file, and why each failed: None for those that passed."""
    settings, report = folder / "pytest.ini", folder / "report.xml"
    settings.write_text("[pytest]\n", encoding="utf-8")
    options = "-m pytest -q -W ignore -p no:cacheprovider -p tests.ipujax.keras.in_scope".split()
    files = ["-c", str(settings), f"--rootdir={folder}", f"--junitxml={report}"]
    command = [sys.executable, *options, *files, "-k", chosen, str(file_of_keras(name))]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if not report.exists():
        raise AssertionError(f"{ended.stdout}\n{ended.stderr}")
    outcomes: dict[str, str | None] = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        if case.find("skipped") is None:
            outcomes[case.attrib["name"]] = bad[0].attrib["message"] if bad else None
    return outcomes


def unexpected(outcomes: dict[str, str | None]) -> dict[str, str]:
    """Why tests failed that should not have."""
    return {
        name: why
        for name, why in outcomes.items()
        if why is not None
        and name not in DIFFERENT | GOES_ON
        and not why.startswith(MISSING)
        and not any(refusal in why for refusal in REFUSED)
    }


@pytest.mark.exhaustive
def test_a_sample_of_the_trainers_tests_passes(tmp_path):
    outcomes = results("trainers/trainer_test.py", tmp_path, SAMPLE)
    assert set(outcomes.values()) == {None}


@pytest.mark.exhaustive
def test_the_trainers_tests_pass_but_for_what_is_refused(tmp_path):
    outcomes = results("trainers/trainer_test.py", tmp_path)
    assert not unexpected(outcomes)
    assert {name for name in DIFFERENT if outcomes[name] is not None} == DIFFERENT
    assert sum(why is None for why in outcomes.values()) > 90


@pytest.mark.sampled(0, 3)
@pytest.mark.parametrize(
    "name",
    [
        "callbacks/backup_and_restore_test.py",
        "callbacks/early_stopping_test.py",
        "callbacks/learning_rate_scheduler_test.py",
        "callbacks/reduce_lr_on_plateau_test.py",
        "callbacks/terminate_on_nan_test.py",
        "optimizers/multi_optimizer_test.py",
        "optimizers/optimizer_test.py",
    ],
)
def test_tests_of_what_surrounds_the_trainer_pass(name, tmp_path):
    outcomes = results(name, tmp_path)
    assert outcomes
    assert not unexpected(outcomes)
