"""A logical device as a drawing: the ladder of links that its IPUs stand on."""

from __future__ import annotations

from collections.abc import Sequence

from lowering import svg

_BOX, _HIGH, _SIDE, _RUNG, _LEFT, _TOP = 96, 30, 60, 46, 10, 34


def picture(name: str, ipus: Sequence[int], places: Sequence[int]) -> str:
    """An SVG: two IPUs on each rung, links between neighbours.

    Args:
      name: the device's.
      ipus: the physical IPU of each shard.
      places: the place of each shard on the ladder: 0 and 1 are its first rung.
    """
    rungs = max(places) // 2 + 1
    drawing = svg.Drawing(2 * _BOX + _SIDE + 40, _TOP + rungs * _RUNG, name)
    drawing.words(_LEFT, 16, f"{name}: {len(ipus)} IPU{'s' * (len(ipus) != 1)}")
    taken = set(places)
    for shard, place in enumerate(places):
        x, y = _corner(place)
        drawing.box(x, y, _BOX, _HIGH, svg.BLUE, opacity=0.25, tip=f"physical IPU {ipus[shard]}")
        drawing.words(x + _BOX / 2, y + 19, f"shard {shard}", "middle")
        if place % 2 == 0 and place + 1 in taken:
            drawing.line(f"M{x + _BOX} {y + _HIGH / 2}h{_SIDE}")
        if place + 2 in taken:
            drawing.line(f"M{x + _BOX / 2} {y + _HIGH}v{_RUNG - _HIGH}")
    return str(drawing)


def _corner(place: int) -> tuple[float, float]:
    rung, side = divmod(place, 2)
    return _LEFT + side * (_BOX + _SIDE), _TOP + rung * _RUNG
