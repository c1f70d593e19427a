"""What a site leads to and does not have is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check_site import missing

PAGE = '<h1 id="top">x</h1><a href="other.html#{}">o</a><img src="{}"><a href="https://x.org/y">'


@pytest.mark.parametrize(
    ("anchor", "picture", "found"),
    [
        ("there", "drawn.svg", []),
        ("gone", "drawn.svg", ["page.html: other.html#gone"]),
        ("there", "lost.svg", ["page.html: lost.svg"]),
    ],
)
def test_what_is_not_there_is_found(
    anchor: str, picture: str, found: list[str], tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(PAGE.format(anchor, picture))
    (tmp_path / "other.html").write_text('<p id="there">here</p><a href="page.html">back</a>')
    (tmp_path / "drawn.svg").touch()
    assert missing(tmp_path) == found
