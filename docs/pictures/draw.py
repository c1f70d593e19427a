"""Draws the pictures of pages, each for light and for dark pages.

`.venv/bin/python docs/pictures/draw.py` writes `NAME-light.svg` and `NAME-dark.svg` beside this
file. All are narrow enough to be read on a phone.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from diagrams import WIDTH, draw_meshes, draw_processes, draw_queues, draw_splits
from family import draw_costs, draw_grids
from scatter import draw_validation

import ipujax as ipu
from ipujax.system import SYSTEM, LogicalDevice
from lowering import svg
from lowering.machine import IPU2

FOLDER = Path(__file__).parent
INK = {"light": "#1b2430", "dark": "#e6edf3"}


def draw_compiler() -> str:
    """Draws the way from a function to what reads its Program."""
    drawing = svg.Drawing(WIDTH, 398, "from a function to results and reports")
    steps = [
        ("function of JAX", "with marks: ipu_shard(1), pipeline_stage(0)"),
        ("jaxpr", "traced once on shapes; calls inlined"),
        ("placed", "each equation has an IPU"),
        ("Program", "kernels, copies between IPUs, loops"),
    ]
    for number, (name, text) in enumerate(steps):
        top = 6 + number * 74
        colour = svg.BLUE if name == "Program" else svg.FAINT
        drawing.draw_box(40, top, 320, 48, colour, opacity=0.3)
        drawing.draw_text(200, top + 20, name, "middle")
        drawing.draw_text(200, top + 38, text, "middle", faint=True)
        if number:
            drawing.draw_line(f"M200 {top - 26}v18")
            drawing.draw_arrow_head(200, top - 2, "down")
    readers = [("fused engine", "one device"), ("replay", "many devices"), ("model", "reports")]
    for number, (name, text) in enumerate(readers):
        left = 6 + number * 131
        drawing.draw_line(f"M{200 + (number - 1) * 90} 276L{left + 62} 324")
        drawing.draw_arrow_head(left + 62, 332, "down")
        drawing.draw_box(left, 334, 125, 48, svg.ORANGE, opacity=0.3)
        drawing.draw_text(left + 62, 354, name, "middle")
        drawing.draw_text(left + 62, 372, text, "middle", faint=True)
    return str(drawing)


def draw_superstep() -> str:
    """Draws two supersteps of four tiles: sync, exchange, compute."""
    drawing = svg.Drawing(WIDTH, 190, "two supersteps of four tiles")
    legend = [("sync", svg.PINK), ("exchange", svg.ORANGE), ("compute", svg.BLUE)]
    for number, (name, colour) in enumerate([*legend, ("waiting", svg.FAINT)]):
        drawing.draw_box(
            60 + number * 86, 2, 12, 12, colour, opacity=0.25 if colour == svg.FAINT else 1
        )
        drawing.draw_text(76 + number * 86, 12, name)
    computes = [(70, 96), (108, 60), (52, 84), (90, 40)]
    for tile, lengths in enumerate(computes):
        top = 28 + tile * 32
        drawing.draw_text(0, top + 17, f"tile {tile}")
        left = 50.0
        for number, length in enumerate(lengths):
            slowest = max(each[number] for each in computes)
            for colour, width in ((svg.PINK, 10), (svg.ORANGE, 40), (svg.BLUE, length)):
                drawing.draw_box(left, top, width, 24, colour)
                left += width
            drawing.draw_box(left, top, slowest - length, 24, svg.FAINT, opacity=0.25)
            left += slowest - length + 2
    drawing.draw_line("M50 168H362")
    drawing.draw_arrow_head(366, 168, "right")
    drawing.draw_text(50, 184, "time: the slowest tile sets the length of each step", faint=True)
    return str(drawing)


def draw_chip() -> str:
    """Draws a chip of the machine model, with its numbers."""
    drawing = svg.Drawing(WIDTH, 262, "one GC200 and one of its tiles")
    drawing.draw_text(0, 14, f"GC200: {IPU2.tiles_per_ipu:,} tiles, {IPU2.clock_hz / 1e9:g} GHz")
    for number in range(160):
        column, row = number % 20, number // 20
        drawing.draw_box(column * 9.4, 24 + row * 9.4, 8, 8, svg.BLUE, opacity=0.6)
    drawing.draw_box(0, 104, 188, 24, svg.ORANGE, opacity=0.4)
    drawing.draw_text(94, 120, "exchange", "middle")
    drawing.draw_line("M94 129v24")
    drawing.draw_arrow_head(94, 156, "down")
    drawing.draw_text(0, 174, "links to other IPUs,")
    drawing.draw_text(0, 190, "the host, streaming memory")
    drawing.draw_line("M188 28L226 36")
    drawing.draw_box(226, 24, 170, 166, svg.BLUE, opacity=0.18)
    drawing.draw_text(236, 42, "one tile")
    drawing.draw_box(236, 52, 150, 40, svg.GREEN, opacity=0.4)
    drawing.draw_text(311, 69, "memory of its own", "middle")
    drawing.draw_text(311, 85, f"{IPU2.bytes_per_tile:,} bytes", "middle", faint=True)
    drawing.draw_box(236, 98, 150, 24, svg.PINK, opacity=0.4)
    drawing.draw_text(311, 114, "supervisor", "middle")
    for worker in range(6):
        drawing.draw_box(236 + worker * 25.4, 128, 23, 34, svg.SKY, opacity=0.6)
        drawing.draw_text(247.5 + worker * 25.4, 149, str(worker), "middle")
    drawing.draw_text(311, 180, "six workers, in turn", "middle", faint=True)
    per_chip = IPU2.tiles_per_ipu * IPU2.bytes_per_tile / 1e6
    drawing.draw_text(
        0, 222, f"All memory of a chip: {per_chip:,.0f} MB. No caches, nothing shared:"
    )
    drawing.draw_text(0, 240, "what a tile needs from another one comes by the exchange,")
    drawing.draw_text(0, 258, "at times that the compiler has laid down.")
    return str(drawing)


def draw_links() -> str:
    """Draws the ladder of eight IPUs."""
    return _select_device(8)._repr_html_()


def draw_schedule() -> str:
    """Draws 1F1B with three stages and four micro-batches."""
    return ipu.schedules.one_f_one_b(3, 4)._repr_html_()


def draw_memory() -> str:
    """Draws how full each tile is in the program of the gallery that does not fit."""
    _select_device(1)
    memory = runpy.run_path(str(FOLDER.parent / "gallery" / "out_of_memory.py"))["report"].memory
    tiles = np.sort(memory.tile_peak_bytes[0])[::-1]
    bars, scale = np.array_split(tiles, 100), 110 / tiles[0]
    drawing = svg.Drawing(WIDTH, 160, "the tiles of an IPU, the fullest first")
    drawing.draw_text(0, 14, f"fullest tile: {tiles[0]:,} bytes")
    for number, bar in enumerate(bars):
        colour = svg.BLUE if bar.max() <= memory.limit else svg.RED
        height = scale * int(bar.max())
        drawing.draw_box(number * 3, 134 - height, 3, height, colour, opacity=0.8)
    line = 134 - scale * memory.limit
    drawing.draw_line(f"M0 {line:g}H302")
    drawing.draw_text(308, line - 4, "limit")
    drawing.draw_text(308, line + 12, f"{memory.limit:,} B")
    drawing.draw_text(0, 152, f"the {len(tiles):,} tiles of the IPU, the fullest first", faint=True)
    return str(drawing)


DRAWINGS: Mapping[str, Callable[[], str]] = {
    "chip": draw_chip,
    "compiler": draw_compiler,
    "costs_of_schedules": draw_costs,
    "grids_of_schedules": draw_grids,
    "links": draw_links,
    "memory": draw_memory,
    "meshes": draw_meshes,
    "processes": draw_processes,
    "queues": draw_queues,
    "schedule": draw_schedule,
    "splits": draw_splits,
    "superstep": draw_superstep,
    "validation": draw_validation,
}


def _select_device(ipus: int) -> LogicalDevice:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    return SYSTEM.device("/device:IPU:0")


def files_of(name: str) -> dict[str, str]:
    """Returns the file of a picture for light pages and that for dark ones, by name."""
    picture = re.search("<svg.*</svg>", DRAWINGS[name](), re.DOTALL)
    assert picture is not None
    text = re.sub(r' style="max-width[^"]*"', "", picture[0], count=1)
    return {
        f"{name}-{scheme}.svg": text.replace("<svg ", f'<svg color="{ink}" ', 1) + "\n"
        for scheme, ink in INK.items()
    }


def main() -> None:
    """Writes all pictures."""
    for name in DRAWINGS:
        for file, text in files_of(name).items():
            (FOLDER / file).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
