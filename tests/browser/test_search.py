"""The search, and the list of keys: dialogs over the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from ipujax.report import Report
from tests.browser.looking import Visit, frames, operations_table, selection, show, shown


def search(tab: Page, wanted: str) -> Locator:
    """What is found."""
    tab.keyboard.press("Control+k")
    tab.keyboard.type(wanted)
    return tab.get_by_role("option")


def focused(tab: Page) -> str:
    """What the element that has the keys is called."""
    return tab.evaluate(
        "() => (({ariaLabel, innerText}) => ariaLabel ?? innerText)(document.activeElement)"
    )


def test_an_operation_is_found_and_shown_with_keys_alone(
    pages: dict[str, Path], reports: dict[str, Report], visit: Visit
) -> None:
    tab = visit.open(pages["small"])
    found = search(tab, "dot_general 128")
    operations = reports["small"].operations
    named = [one for one in operations if "dot_general" in one.name]
    with_both = [one for one in named if "128" in one.name + one.label]
    assert tab.locator("[data-kind=operation]").count() == len(with_both)
    tab.keyboard.press("ArrowDown")
    second = found.nth(1)
    assert second.get_attribute("aria-selected") == "true"
    box = tab.get_by_role("combobox")
    assert box.get_attribute("aria-activedescendant") == second.get_attribute("id")
    said = second.inner_text()
    tab.keyboard.press("Enter")
    assert shown(tab) == "operations"
    assert tab.get_by_role("dialog").count() == 0
    chosen = next(o for o in named if o.number == selection(tab)["operation"])
    assert chosen.label in said
    assert chosen.label in tab.locator(".chip").inner_text()
    assert f"{chosen.cycles / 1000:.3g} k cycles" in said
    assert focused(tab) == "Operations"


def test_shift_and_enter_stay_in_the_view(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["small"])
    show(tab, "timeline")
    search(tab, "tanh")
    tab.keyboard.press("Shift+Enter")
    assert shown(tab) == "timeline"
    assert selection(tab)["name"].startswith("tanh")


@pytest.mark.parametrize(
    ("wanted", "kind", "view", "selected"),
    [
        ("weights into", "tensor", "memory", {"name": "weights['into'] float32[64,128]"}),
        ("shown.py:28", "line", "source", {"name": None}),
        ("infeed_ [0] 16,64", "tensor", "liveness", {"category": "activations", "step": 0}),
        ("mtml", "operation", "operations", {"step": None}),  # some of its letters
    ],
)
def test_each_kind_leads_to_where_it_shows_best(
    pages: dict[str, Path],
    visit: Visit,
    wanted: str,
    kind: str,
    view: str,
    selected: dict[str, str],
) -> None:
    tab = visit.open(pages["small"])
    option = search(tab, wanted).first
    assert option.get_attribute("data-kind") == kind
    option.click()
    frames(tab)
    assert shown(tab) == view
    assert selected.items() <= selection(tab).items()


def test_scopes_are_found(pages: dict[str, Path], reports: dict[str, Report], visit: Visit) -> None:
    tab = visit.open(pages["pipeline"])
    scope = next(one.scope for one in reports["pipeline"].operations if one.scope)
    option = search(tab, scope.lower()).first
    assert option.get_attribute("data-kind") == "scope"
    cycles = sum(one.cycles for one in reports["pipeline"].operations if one.scope == scope)
    assert f"{cycles / 1e6:.3g} M cycles" in option.inner_text()
    option.click()
    assert selection(tab)["scope"] == scope


def test_nothing_found_is_said(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["small"])
    assert search(tab, "qqqq").count() == 0
    assert "Nothing is called that." in tab.get_by_role("dialog").inner_text()
    tab.keyboard.press("Enter")
    assert tab.get_by_role("dialog").is_visible()


def test_escape_closes_a_dialog_and_leaves_the_selection(
    pages: dict[str, Path], visit: Visit
) -> None:
    tab = visit.open(pages["small"])
    operations_table(tab).locator("tr[data-row]").first.click()
    chosen = selection(tab)
    for key, dialog in (("/", "Search"), ("?", "Keys")):
        before = tab.locator("[data-view=operations] .table-scroll")
        before.focus()
        tab.keyboard.press(key)
        assert tab.get_by_role("dialog", name=dialog).is_visible()
        tab.keyboard.press("3")  # no other view
        tab.keyboard.press("Escape")
        assert tab.get_by_role("dialog").count() == 0
        assert before.evaluate("node => node === document.activeElement")
    assert (shown(tab), selection(tab)) == ("operations", chosen)


def test_buttons_open_the_dialogs_too(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["small"], width=400)
    for button, dialog in (("Search Ctrl K", "Search"), ("Keys (?)", "Keys")):
        tab.get_by_role("button", name=button).click()
        assert tab.get_by_role("dialog", name=dialog).is_visible()
        tab.get_by_role("button", name="Close").click()
        assert focused(tab).startswith(button)


def test_keys_are_letters_where_one_types(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["small"])
    field = show(tab, "operations").get_by_placeholder("Filter operations")
    field.click()
    tab.keyboard.type("a/b?1")
    assert field.input_value() == "a/b?1"
    assert tab.get_by_role("dialog").count() == 0
    assert shown(tab) == "operations"
