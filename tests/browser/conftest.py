"""A browser, and pages of reports that are looked at.

Chromium must be installed (`apt-get install chromium`); without it these tests are skipped, unless
`IPUJAX_BROWSER` is "required".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from ipujax.report import Report
from tests.browser.looking import Visit, start_chromium
from tests.browser.samples import SAMPLES


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    with start_chromium() as browser:
        if browser is not None:
            yield browser
        elif os.environ.get("IPUJAX_BROWSER") == "required":
            pytest.fail("IPUJAX_BROWSER is required, and there is no Chromium")
        else:
            pytest.skip("no Chromium; install it with: apt-get install chromium")


@pytest.fixture(scope="session")
def reports() -> dict[str, Report]:
    """Those of the samples that have been asked for."""
    return {}


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, reports: dict[str, Report]) -> dict[str, Path]:
    """The page of each sample, written when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    class Pages(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            reports[name] = SAMPLES[name]()
            path = folder / f"{name}.html"
            reports[name].to_html(path)
            self[name] = path
            return path

    return Pages()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens pages, and fails if one of them complains or asks the network for anything."""
    visiting = Visit(browser)
    yield visiting
    visiting.leave()
