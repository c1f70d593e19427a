"""The page that lists all options says what their metadata says."""

from __future__ import annotations

import re

import pytest

from ipujax.config import IPUConfig
from ipujax.system import Effect
from tests.harness import ROOT
from tests.ipujax.system.test_effects import OPTIONS

PAGE = ROOT / "docs" / "configuration.md"
ABOUT = """\
# Options of `IPUConfig`

Every attribute, with its default, what kind of thing it changes here, and what it acts on. The same
is in `config.get_attribute_metadata(name)`: `.default`, `.effect`, `.doc`. What follows is made of
that by `pytest tests/ipujax/system/test_configuration_page.py --update-golden`, and tests change
each option alone to see whether its effect is what it says.

"""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """The whole page; options in the order in which `print(config)` has them."""
    lines = [ABOUT, "| effect | an option with it changes |", "|---|---|"]
    lines += [f"| {effect.name} | {effect.value} |" for effect in Effect]
    lines += ["", "| attribute | default | effect | what it does |", "|---|---|---|---|"]
    for name in OPTIONS:
        known, effect = IPUConfig().get_attribute_metadata(name), OPTIONS[name] or Effect.NONE
        default = cell(f"`{known.default!s}`" if known.default != "" else "`''`")
        lines.append(f"| `{name}` | {default} | {effect.name} | {cell(known.doc)} |")
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def test_the_page_is_what_the_metadata_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8", newline="\n")
    assert PAGE.read_text(encoding="utf-8") == page(), "run it with --update-golden"


def test_the_page_has_every_option_once() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(OPTIONS)
    assert len(rows) == len(set(rows)) > 40
