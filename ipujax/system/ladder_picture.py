"""Draws a logical device: the ladder of links that connects its IPUs."""

from __future__ import annotations

from collections.abc import Sequence

from lowering import machine, svg

_BOX, _HIGH, _SIDE, _RUNG, _LEFT, _TOP = 96, 30, 60, 46, 10, 34
_EDGE = 6  # how far the links that join ends stand out
_RACK_IPUS = machine.transfers.RACK_IPUS


def draw_ladder(name: str, ipus: Sequence[int], positions: Sequence[int]) -> str:
    """Draws an SVG: two IPUs on each rung, links between neighbours, the joined ends of racks.

    Args:
      name: the device's name.
      ipus: the physical IPU of each shard.
      positions: the position of each shard on the ladder: 0 and 1 are its first rung.
    """
    rungs = max(positions) // 2 + 1
    drawing = svg.Drawing(2 * _BOX + _SIDE + 40, _TOP + rungs * _RUNG, name)
    drawing.draw_text(_LEFT, 16, f"{name}: {len(ipus)} IPU{'s' * (len(ipus) != 1)}")
    used_positions = set(positions)
    for shard, position in enumerate(positions):
        x, y = _corner_of_position(position)
        drawing.draw_box(
            x, y, _BOX, _HIGH, svg.BLUE, opacity=0.25, tip=f"physical IPU {ipus[shard]}"
        )
        drawing.draw_text(x + _BOX / 2, y + 19, f"shard {shard}", "middle")
        if position % 2 == 0 and position + 1 in used_positions:
            drawing.draw_line(f"M{x + _BOX} {y + _HIGH / 2}h{_SIDE}")
        if position + 2 in used_positions and (position + 2) % _RACK_IPUS > 1:
            drawing.draw_line(f"M{x + _BOX / 2} {y + _HIGH}v{_RUNG - _HIGH}")
        if position % _RACK_IPUS < 2 and position + _RACK_IPUS - 2 in used_positions:
            outwards = -_EDGE if position % 2 == 0 else _EDGE
            start = x if position % 2 == 0 else x + _BOX
            last_y = _corner_of_position(position + _RACK_IPUS - 2)[1]
            drawing.draw_line(
                f"M{start} {y + _HIGH / 2}h{outwards}V{last_y + _HIGH / 2}h{-outwards}"
            )
    return str(drawing)


def _corner_of_position(position: int) -> tuple[float, float]:
    rung, side = divmod(position, 2)
    return _LEFT + side * (_BOX + _SIDE), _TOP + rung * _RUNG
