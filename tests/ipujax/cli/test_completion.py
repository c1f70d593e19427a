"""`ipujax completion`: what bash offers after the beginning of a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ipujax.cli import completion
from ipujax.cli.command import COMMANDS
from tests.harness import ROOT

pytest.importorskip("shtab")

# Asks the completion function as bash does: with the words, and the number of the last.
ASK = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shtab_ipujax
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert completion.main(["bash"]) == 0
    path = tmp_path / "ipujax.bash"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("", {*COMMANDS}),
        ("re", {"report", "reset"}),
        ("report --d", {"--diff"}),
        ("run --spread ", {"replicas", "ipus"}),
        ("completion ", {"bash", "fish", "tcsh", "zsh"}),
        ("report --html pypro", {"pyproject.toml"}),
        ("report --diff a.json LIC", {"LICENSE"}),
        ("info --ipu-", {"--ipu-arch", "--ipu-count"}),
    ],
)
def test_bash_offers(words: str, offered: set[str], script: Path) -> None:
    command = ["bash", "-c", ASK, "ask", str(script), "ipujax", *words.split(" ")]
    answer = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert offered == set(answer.stdout.split()), answer.stderr


@pytest.mark.parametrize("shell", ["fish", "tcsh", "zsh"])
def test_other_shells_get_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main([shell]) == 0
    script = capsys.readouterr().out
    assert "inventory" in script
    assert "executable-cache-path" in script


def test_without_shtab_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert completion.main(["bash"]) == 1
    assert "pip install 'ipujax[completion]'" in capsys.readouterr().err
