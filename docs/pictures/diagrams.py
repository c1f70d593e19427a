"""Diagrams of how models are split, fed and dealt to devices and processes."""

from __future__ import annotations

from lowering import svg

WIDTH = 400
STAGES = (svg.BLUE, svg.ORANGE, svg.GREEN, svg.PINK)


def draw_splits() -> str:
    """Draws what two IPUs do over time when they are shards, a pipeline and replicas."""
    drawing = svg.Drawing(WIDTH, 268, "two IPUs as shards, as a pipeline and as replicas")
    rows = {
        "shards: one part after the other": ("0.1.2.3.", ".0.1.2.3"),
        "pipeline: parts of several micro-batches": ("0123", ".0123"),
        "replicas: the whole model on each": ("0022", "1133"),
    }
    for number, (title, lanes) in enumerate(rows.items()):
        top = 14 + number * 86
        drawing.draw_text(0, top, title)
        for ipu, lane in enumerate(lanes):
            y = top + 8 + ipu * 26
            drawing.draw_text(0, y + 16, f"IPU {ipu}", faint=True)
            drawing.draw_box(50, y, 336, 23, svg.FAINT, opacity=0.15)
            for tick, batch in enumerate(lane):
                if batch != ".":
                    _draw_numbered_box(drawing, 50 + tick * 42, y, STAGES[ipu], batch)
    return str(drawing)


def draw_queues() -> str:
    """Draws the way of data through an infeed, a loop on the device, and an outfeed."""
    drawing = svg.Drawing(WIDTH, 190, "from a data set to results")
    drawing.draw_text(0, 14, "host", faint=True)
    drawing.draw_text(0, 124, "device", faint=True)
    drawing.draw_line("M0 98H400")
    for left, name in ((60, "data set"), (264, "your program")):
        _draw_box(drawing, left, 20, 100, svg.FAINT, name)
    for left, name in ((60, "infeed"), (264, "outfeed")):
        drawing.draw_text(left + 10, 92, name)
        for number in range(3):
            drawing.draw_box(left + 62 + number * 14, 82, 12, 12, svg.ORANGE, opacity=0.8)
    drawing.draw_line("M104 54v16M104 102v26")
    drawing.draw_arrow_head(104, 76, "down")
    drawing.draw_arrow_head(104, 134, "down")
    drawing.draw_line("M320 134v-26M320 76v-14")
    drawing.draw_arrow_head(320, 102, "up")
    drawing.draw_arrow_head(320, 56, "up")
    _draw_box(drawing, 60, 136, 304, svg.BLUE, "loop: many steps in one call")
    drawing.draw_text(60, 186, "an element goes in and results go out in each step", faint=True)
    return str(drawing)


def draw_processes() -> str:
    """Draws two processes that share replicas, and two that share the stages of one."""
    drawing = svg.Drawing(WIDTH, 216, "what two processes have")
    titles = ("--spread replicas", "--spread ipus")
    for side, title in enumerate(titles):
        left = side * 206
        drawing.draw_text(left, 14, title)
        for process in range(2):
            top = 24 + process * 84
            drawing.draw_box(left, top, 194, 70, svg.FAINT, opacity=0.2)
            drawing.draw_text(left + 8, top + 18, f"process {process}", faint=True)
            stages = (0, 1, 2, 3) if side == 0 else (2 * process, 2 * process + 1)
            for place, stage in enumerate(stages):
                _draw_numbered_box(
                    drawing, left + 8 + place * 46, top + 30, STAGES[stage], str(stage)
                )
        drawing.draw_line(f"M{left + 97} 96v10")
    drawing.draw_text(0, 198, "each has whole replicas;")
    drawing.draw_text(0, 212, "gradients go between", faint=True)
    drawing.draw_text(206, 198, "each has some stages;")
    drawing.draw_text(206, 212, "activations go between", faint=True)
    return str(drawing)


def draw_meshes() -> str:
    """Draws four stages on eight devices: a mesh of two devices for each stage."""
    drawing = svg.Drawing(WIDTH, 150, "four stages on eight devices")
    drawing.draw_text(0, 14, 'ipu.meshes(4, {"data": 2})')
    for stage, colour in enumerate(STAGES):
        left = stage * 102
        drawing.draw_box(left, 26, 90, 98, colour, opacity=0.25)
        drawing.draw_text(left + 45, 44, f"stage {stage}", "middle")
        for row in range(2):
            drawing.draw_box(left + 6, 54 + row * 34, 78, 28, colour, opacity=0.55)
            drawing.draw_text(left + 45, 73 + row * 34, f"device {2 * stage + row}", "middle")
        if stage:
            drawing.draw_arrow_head(left - 1, 75, "right")
    drawing.draw_text(
        0, 144, "each device has half of a micro-batch, and its stage's weights", faint=True
    )
    return str(drawing)


def _draw_box(
    drawing: svg.Drawing, left: float, top: float, width: float, colour: str, text: str
) -> None:
    drawing.draw_box(left, top, width, 34, colour, opacity=0.3)
    drawing.draw_text(left + width / 2, top + 22, text, "middle")


def _draw_numbered_box(
    drawing: svg.Drawing, left: float, top: float, colour: str, text: str
) -> None:
    drawing.draw_box(left, top, 40, 23, colour, opacity=0.5)
    drawing.draw_text(left + 20, top + 16, text, "middle")
