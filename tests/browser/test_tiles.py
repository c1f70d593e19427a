"""The map of what tiles do: of the whole call, or of what is chosen in a table."""

from __future__ import annotations

from pathlib import Path

from tests.browser.looking import Visit, colours, frames, pixels, selection, show


def test_a_row_of_a_table_is_what_the_map_shows(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["uneven"])
    view = show(tab, "tiles")
    said = view.locator(".tile-facts")
    # Vertex i takes 4 (i + 1) cycles of a worker, so 24 (i + 1) of its tile, three times.
    assert "200 of 1472 tiles of IPU 0 take part; the busiest, tile 199, has 14.4 k" in (
        said.inner_text()
    )
    assert "1.99 times their mean, 7.24 k" in said.inner_text()
    assert colours(tab, "tile-activity") > 20
    whole = pixels(tab, "tile-activity").copy()
    row = view.locator("[data-table=compute-sets] tr[data-row='0']")
    assert row.inner_text().split()[:4] == ["uneven", "0", "3", "4.91"]
    row.click()
    frames(tab)
    assert "uneven, one of 3 runs a call" in said.inner_text()
    assert "4.8 k cycles of vertices" in said.inner_text()
    assert (pixels(tab, "tile-activity") == whole).all()  # three equal runs
    view.locator("[data-table=exchanges] tr[data-row='0']").click()
    frames(tab)
    assert "800 B bytes received" in said.inner_text()
    view.get_by_role("button", name="bytes sent").click()
    frames(tab)
    assert "the busiest, tile 200, has 800 B bytes sent" in said.inner_text()
    assert (pixels(tab, "tile-activity") != whole).sum() > 1000
    view.get_by_role("button", name="whole call").click()
    frames(tab)
    assert "The whole call: 201 of 1472" in said.inner_text()


def test_a_tile_of_the_map_is_chosen(pages: dict[str, Path], visit: Visit) -> None:
    tab = visit.open(pages["uneven"])
    view = show(tab, "tiles")
    view.locator("canvas").first.click(position={"x": 5, "y": 5})
    frames(tab)
    assert selection(tab)["tile"] == 0
