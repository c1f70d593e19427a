"""The table of a Keras model's layers and their pipeline stages."""

from __future__ import annotations

import importlib
import io
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from ipujax.keras.assignment import get_pipeline_stage_assignment
from ipujax.keras.stages import Stages, calls_of, is_graph, stages_of
from ipujax.pipelines.values import check

_HEADER = ("Layer (type) (node index)", "Output Shape", "Pipeline Stage")
_WIDTHS = (0.5, 0.3, 0.2)  # of the line
_LONGEST, _SHORTEST = 88, 24

_Row = tuple[str, str, str]


def print_pipeline_stage_assignment_summary(
    model: Any, line_length: int | None = None, print_fn: Callable[[str], object] | None = print
) -> None:
    """Prints a table like that of Keras's `summary`: the layers in order, with their stages.

    Args:
      model: the model.
      line_length: characters of a line; by default 88, or the terminal's where that has fewer.
      print_fn: called with each line; None for `print`.

    Raises:
      PipelineError: (a `ValueError`) a subclassed model that has not been traced yet, or lines of
        less than 24 characters.
      PipelineTypeError: (a `TypeError`) an argument of another type.
    """
    check.function(print_fn, "print_fn", optional=True)
    if line_length is None:
        line_length = max(_SHORTEST, min(_LONGEST, shutil.get_terminal_size().columns - 4))
    width = check.integer(line_length, "line_length", _SHORTEST)
    rows = list(_rows(model, stages_of(model), "")) if is_graph(model) else _traced_rows(model)
    for line in _table(model.name, rows, width).splitlines():
        (print_fn or print)(line)


def _rows(model: Any, stages: Stages, indent: str) -> Iterator[_Row]:
    for call, entry in zip(calls_of(model), stages, strict=True):
        nested = isinstance(entry, tuple)
        if call.node is None:
            shape = _built_shape(call.layer)
        else:
            shape = ", ".join(str(tuple(x.shape)) for x in call.node.outputs)
        stage = "" if nested else str(entry)
        yield _name(call.layer, call.node_index, indent), shape, stage
        if nested:
            yield from _rows(call.layer, entry, f"   {indent or '└ '}")


def _traced_rows(model: Any) -> list[_Row]:
    return [
        (_name(each.layer, each.node_index), _built_shape(each.layer), str(each.pipeline_stage))
        for each in get_pipeline_stage_assignment(model)
    ]


def _name(layer: Any, node_index: int, indent: str = "") -> str:
    return f"{indent}{layer.name} ({type(layer).__name__}) ({node_index})"


def _built_shape(layer: Any) -> str:
    """The shape that Keras's own summary shows of a layer that is in no graph."""
    marked = importlib.import_module("keras.src.utils.summary_utils").format_layer_shape(layer)
    return importlib.import_module("rich.text").Text.from_markup(marked).plain


def _table(name: str, rows: list[_Row], width: int) -> str:
    """The text of the table, made by what Keras makes its own with."""
    table_module = importlib.import_module("rich.table")
    columns = [
        table_module.Column(title, width=int(part * width), overflow="fold")
        for title, part in zip(_HEADER, _WIDTHS, strict=True)
    ]
    table = table_module.Table(*columns, width=width, show_lines=True)
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    console = importlib.import_module("rich.console").Console(
        file=text,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,  # where it would show the table itself, and write none
        markup=False,
    )
    console.print(f'Model: "{name}"', table, sep="\n", highlight=False)
    return text.getvalue()
