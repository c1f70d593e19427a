"""Reports hold the text of the user's lines that they name, and no more than fits."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import pytest

import ipujax as ipu
from ipujax.report import Report
from ipujax.report.excerpts import MOST_BYTES, MOST_LINES, Excerpt, collect_excerpts
from tests.ipujax.reporting import configured, struct


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name: str, lines: int, width: int = 1) -> list[str]:
    texts = [f"{number}{'x' * width}\n" for number in range(1, lines + 1)]
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("".join(texts), encoding="utf-8")
    return texts


def size(found: tuple[Excerpt, ...]) -> tuple[int, int]:
    texts = [one.text for one in found]
    return sum(text.count("\n") for text in texts), sum(map(len, texts))


def test_a_report_holds_the_files_of_its_call_paths() -> None:
    configured(1)
    report = ipu.compile(lambda x: jnp.tanh(x) @ x).lower(struct(8, 8)).report()
    (source,) = report.sources
    assert (source.file, source.line) == (__file__, 1)
    assert source.text == Path(__file__).read_text(encoding="utf-8")
    assert Report.from_dict(report.to_dict()).sources == report.sources
    older = {key: value for key, value in report.to_dict().items() if key != "sources"}
    assert Report.from_dict(older).sources == ()


def test_files_of_others_and_those_that_are_not_there_are_left_out() -> None:
    own = written("own.py", 3)
    written("lib/site-packages/theirs.py", 3)
    path = ("own.py:2 (f)", "lib/site-packages/theirs.py:1 (g)", "gone.py:1 (h)", "no line")
    assert collect_excerpts([path]) == (Excerpt("own.py", 1, "".join(own)),)
    assert collect_excerpts([]) == ()


def test_a_long_file_is_cut_to_what_is_around_its_lines() -> None:
    texts = written("long.py", 3 * MOST_LINES)
    short = written("short.py", 5)
    paths = [("short.py:1 (f)", f"long.py:{line} (g)") for line in (1, 80, 4000)]
    assert collect_excerpts(paths) == (
        Excerpt("long.py", 1, "".join(texts[:130])),
        Excerpt("long.py", 3950, "".join(texts[3949:4050])),
        Excerpt("short.py", 1, "".join(short)),
    )


@pytest.mark.parametrize(("lines", "width"), [(5000, 1), (400, 1000), (1100, 90)])
def test_all_together_have_a_limit(lines: int, width: int) -> None:
    for file in range(4):
        written(f"{file}.py", lines, width)
    named = [(f"{file}.py:{line} (f)",) for file in range(4) for line in range(1, 400, 20)]
    found = collect_excerpts(named)
    assert {one.file for one in found} == {f"{file}.py" for file in range(4)}
    assert all(
        least <= most for least, most in zip(size(found), (MOST_LINES, MOST_BYTES), strict=True)
    )


def test_a_file_of_which_too_many_lines_are_named_is_left_out() -> None:
    written("many.py", 3 * MOST_LINES)
    own = written("own.py", 3)
    every = [(f"many.py:{line} (f)",) for line in range(1, 3 * MOST_LINES)]
    assert collect_excerpts([*every, ("own.py:1 (f)",)]) == (Excerpt("own.py", 1, "".join(own)),)
