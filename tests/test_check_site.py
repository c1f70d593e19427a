"""What a site leads to and does not have is found, and pages that are too wide for phones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.browser.looking import start_chromium
from tests.check_site import missing, too_wide

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


def is_browser_there() -> bool:
    with start_chromium() as browser:
        return browser is not None


def test_pages_that_are_too_wide_for_phones_are_found(tmp_path: Path) -> None:
    head = '<meta name="viewport" content="width=device-width"><style>* { margin: 0 }</style>'
    for width in (390, 391):
        (tmp_path / f"{width}.html").write_text(f'{head}<p style="width: {width}px">x</p>')
    # In a thread: Playwright allows one browser in each, and other tests have theirs in this one.
    with ThreadPoolExecutor() as threads:
        if not threads.submit(is_browser_there).result():
            pytest.skip("no Chromium")
        assert threads.submit(too_wide, tmp_path).result() == ["391.html: 391 pixels wide, of 390"]
