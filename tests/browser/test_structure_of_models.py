"""Program and Operations show a model by its parts: its named scopes, or else its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from playwright.sync_api import Locator, Page

import ipujax as ipu
from ipujax.report import Report
from ipujax.report.presentation import html
from tests.browser.looking import Visit, frames, selection, show
from tests.ipujax.reporting import configured, struct

BLOCKS = ("first", "second")


def dense(weights: Any, x: Any) -> Any:
    return x @ weights


def norm(x: Any) -> Any:
    return (x - jnp.mean(x)) * jax.lax.rsqrt(jnp.var(x) + 1)


def block(weights: Any, x: Any) -> Any:
    with jax.named_scope("dense"):
        x = dense(weights, x)
    with jax.named_scope("norm"):
        return norm(x)


def scoped(weights: Any, x: Any) -> Any:
    with jax.named_scope("net"):
        for name, own in zip(BLOCKS, weights, strict=True):
            with jax.named_scope(name):
                x = jnp.tanh(block(own, x))
        return jnp.sum(x)


def plain(weights: Any, x: Any) -> Any:
    for own in weights:
        x = jnp.tanh(norm(dense(own, x)))
    return jnp.sum(norm(x))


def trained(loss: Callable[..., Any]) -> Report:
    def step(weights: Any, x: Any) -> Any:
        gradients = jax.grad(loss)(weights, x)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

    configured(1)
    return ipu.compile(step).lower([struct(16, 16)] * 2, struct(8, 16)).report()


@pytest.fixture(scope="module")
def by_scope() -> Report:
    return trained(scoped)


@pytest.fixture(scope="module")
def by_call() -> Report:
    return trained(plain)


def opened(visit: Visit, report: Report, view: str, **window: Any) -> tuple[Page, Locator]:
    """The page at a view, all of whose tree is open."""
    tab = visit.open(html.render_html_page([report.to_dict()]), height=2000, **window)
    root = show(tab, view)
    tree = root.get_by_role("treegrid")
    tree.press("Home")
    tree.press("*")
    frames(tab)
    return tab, root


def rows(view: Locator) -> list[tuple[int, str, str]]:
    """The level, the name and the cycles of each row, of which only those in sight are there."""
    return view.locator(".tree-box").evaluate(
        """async box => {
          const found = [];
          for (box.scrollTop = 0; ; box.scrollTop += 300) {
            await new Promise(requestAnimationFrame);
            box.dispatchEvent(new Event("scroll"));
            for (const row of box.querySelectorAll("[data-row]")) found[row.dataset.row] = [
              Number(row.getAttribute("aria-level")),
              row.querySelector(".tree-name").textContent,
              row.querySelector(".tree-cell-1").textContent,
            ];
            if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1) break;
          }
          box.scrollTop = 0;
          return found;
        }"""
    )


def below(found: list[tuple[int, str, str]], name: str) -> list[str]:
    """The names one level below the first row of a name."""
    at = next(i for i, (_, own, _) in enumerate(found) if own == name)
    level = found[at][0]
    names: list[str] = []
    for other, own, _ in found[at + 1 :]:
        if other <= level:
            break
        if other == level + 1:
            names.append(own)
    return names


def number(told: str) -> float:
    """The number behind `1.5 k`."""
    digits, _, unit = told.partition(" ")
    return float(digits) * {"": 1, "k": 1e3, "M": 1e6}[unit]


def test_operations_are_a_tree_of_scopes_with_their_sums(by_scope: Report, visit: Visit) -> None:
    _, view = opened(visit, by_scope, "operations")
    found = rows(view)
    assert below(found, "all operations") == ["net", "(no scope)"]
    assert below(found, "net")[:2] == list(BLOCKS)
    assert below(found, "first")[:2] == ["dense", "norm"]
    assert "multiply, tanh" in below(found, "first")
    for scope, name in (("net", "net"), ("net/first", "first"), ("net/first/norm", "norm")):
        cycles = next(told for _, own, told in found if own == name)
        inside = [one for one in by_scope.operations if f"{one.scope}/".startswith(f"{scope}/")]
        assert number(cycles) == pytest.approx(sum(one.cycles for one in inside), rel=0.006)
    assert view.locator(".pass-forward").count() > 1


def test_without_scopes_operations_are_a_tree_of_functions(by_call: Report, visit: Visit) -> None:
    _, view = opened(visit, by_call, "operations")
    found = rows(view)
    assert "dense" in below(found, "plain")
    assert below(found, "plain").count("norm") == 2  # called from two lines
    calls = view.locator(".tree-row", has_text="norm").locator(".tree-extra").all_inner_texts()
    assert len(set(calls)) > 1
    assert view.get_by_role("button", name="scope", exact=True).count() == 0


def test_the_filter_of_the_tree_leaves_what_it_finds_and_its_sum(
    by_scope: Report, visit: Visit
) -> None:
    tab, view = opened(visit, by_scope, "operations")
    view.get_by_label("Filter operations").fill("dot_general")
    tab.wait_for_timeout(200)
    found = [one for one in by_scope.operations if "dot_general" in one.name]
    assert f"{len(found)} operations" in view.locator("[data-sum]").inner_text()
    assert not [name for _, name, _ in rows(view) if name == "norm"]


def test_the_most_expensive_parts_come_first_if_asked(by_scope: Report, visit: Visit) -> None:
    _, view = opened(visit, by_scope, "operations")
    view.get_by_role("button", name="most cycles first").click()
    found = [number(cycles) for level, _, cycles in rows(view) if level == 2]
    assert found == sorted(found, reverse=True)


def test_a_scope_is_selected_in_all_views(by_scope: Report, visit: Visit) -> None:
    tab, view = opened(visit, by_scope, "operations")
    view.locator(".tree-row", has_text="first").first.click()
    assert selection(tab)["scope"] == "net/first"
    assert "net/first" in tab.locator(".chip").inner_text()
    assert view.locator(".is-exact").count() == 1
    inside = [one for one in by_scope.operations if one.scope.startswith("net/first")]
    program = show(tab, "program")
    assert program.locator(".is-exact .tree-name").first.inner_text() == "first"
    assert 0 < program.locator(".is-linked").count() <= 2 * len(inside)


def test_the_program_has_passes_and_scopes_in_its_kernel(by_scope: Report, visit: Visit) -> None:
    _, view = opened(visit, by_scope, "program")
    found = rows(view)
    kernel = next(name for _, name, _ in found if name.endswith(" more"))
    assert set(below(found, kernel)) == {"forward", "backward", "update"}
    assert "net" in below(found, "forward")
    assert below(found, "net")[:2] == list(BLOCKS)
    shown = {name: number(cycles) for _, name, cycles in found}
    whole = sum(shown[name] for name in ("forward", "backward", "update"))
    assert whole == pytest.approx(shown[kernel], rel=0.01)


def test_many_steps_of_one_kind_are_one_row(by_scope: Report, visit: Visit) -> None:
    document = by_scope.to_dict()
    nodes, strings = document["program"], document["strings"]
    store = {"kind": "store", "name": "store to streaming memory", "origin": ""}
    numbers = {key: len(strings) + i for i, key in enumerate(store)}
    strings.extend(store.values())
    root = {key: column.pop() for key, column in nodes.items()}
    more = {"ipu": 0, "count": 1, "cycles": 50, "operation": -1, "children": []}
    for key, column in nodes.items():
        column.append(numbers.get(key, more.get(key)))
    root["children"] = [*root["children"], *[len(nodes["kind"]) - 1] * 5]
    for key, column in nodes.items():
        column.append(root[key])
    tab = visit.open(html.render_html_page([document]))
    view = show(tab, "program")
    view.get_by_role("treegrid").press("End")
    row = view.locator(".tree-row", has_text="store to streaming memory")
    assert row.count() == 1
    assert "5 of them" in row.inner_text()
    view.get_by_role("treegrid").press("ArrowRight")
    view.get_by_role("treegrid").press("End")
    assert view.locator(".tree-row", has_text="store to streaming memory").count() == 6


def test_the_program_shows_operations_as_they_run_if_asked(by_scope: Report, visit: Visit) -> None:
    _, view = opened(visit, by_scope, "program")
    view.get_by_role("button", name="order", exact=True).click()
    tree = view.get_by_role("treegrid")
    tree.press("Home")
    tree.press("*")
    (kernel,) = [one for one in by_scope.program.children if one.kind == "execute"]
    labels = {one.number: one.label for one in by_scope.operations}
    assert below(rows(view), rows(view)[1][1]) == [
        labels[one.operation] for one in kernel.children if one.operation is not None
    ]


def test_an_operation_of_the_program_tells_its_calls(by_scope: Report, visit: Visit) -> None:
    tab, view = opened(visit, by_scope, "program")
    view.locator(".tree-row:not(.tree-head) .kind-operation").first.click()
    chosen = next(o for o in by_scope.operations if o.number == selection(tab)["operation"])
    said = view.locator(".tree-details")
    assert chosen.name in said.inner_text()
    assert chosen.scope in said.inner_text()
    calls = said.locator("[data-frame]").evaluate_all("all => all.map(one => one.dataset.frame)")
    assert calls == list(chosen.call_path)
    said.locator("[data-frame]").first.click()
    assert tab.locator("[data-view=source]").is_visible()
    assert selection(tab)["origin"] == chosen.call_path[0]


def test_reports_of_earlier_versions_are_shown_without_structure(
    by_scope: Report, visit: Visit
) -> None:
    document = by_scope.to_dict()
    del document["program"]["operation"], document["sources"]
    for one in document["operations"]:
        for key in ("scope", "call_path", "direction", "number", "label"):
            del one[key]
    tab = visit.open(html.render_html_page([document]))
    for view in ("program", "operations", "source"):
        assert show(tab, view).locator("[data-row]").count() > 1, view
