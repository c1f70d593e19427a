"""The table of a Keras model's layers and their pipeline stages."""

from __future__ import annotations

import importlib
import io
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ipujax.keras.layer_stages import get_pipeline_stage_assignment
from ipujax.keras.model_stages import Stages, calls_of_model, is_graph, stages_of_model
from ipujax.pipelines import check

if TYPE_CHECKING:
    import keras

_HEADER = ("Layer (type) (node index)", "Output Shape", "Pipeline Stage")
_WIDTHS = (0.5, 0.3, 0.2)  # shares of the line
_LONGEST, _SHORTEST = 88, 24

_Row = tuple[str, str, str]


def print_pipeline_stage_assignment_summary(
    model: keras.Model,
    line_length: int | None = None,
    print_fn: Callable[[str], object] | None = print,
) -> None:
    """Prints a table of the layers and their stages, like that of Keras's `summary`.

    Args:
      model: the model.
      line_length: characters of a line; by default 88, or the terminal's where that has fewer.
      print_fn: called with each line; None for `print`.

    Raises:
      PipelineError: (a `ValueError`) a subclassed model that has not been traced yet, or lines of
        less than 24 characters.
      PipelineTypeError: (a `TypeError`) an argument of another type.
    """
    check.require_function(print_fn, "print_fn", optional=True)
    if line_length is None:
        line_length = max(_SHORTEST, min(_LONGEST, shutil.get_terminal_size().columns - 4))
    width = check.require_integer(line_length, "line_length", _SHORTEST)
    rows = (
        list(_iterate_rows(model, stages_of_model(model), ""))
        if is_graph(model)
        else _build_rows_of_trace(model)
    )
    for line in _format_table(model.name, rows, width).splitlines():
        (print_fn or print)(line)


def _iterate_rows(model: keras.Model, stages: Stages, indent: str) -> Iterator[_Row]:
    for call, entry in zip(calls_of_model(model), stages, strict=True):
        is_nested = isinstance(entry, tuple)
        if call.node is None:
            shape = _format_output_shape(call.layer)
        else:
            shape = ", ".join(str(tuple(output.shape)) for output in call.node.outputs)
        stage = "" if is_nested else str(entry)
        yield _describe_layer_call(call.layer, call.node_index, indent), shape, stage
        if is_nested:
            yield from _iterate_rows(call.layer, entry, f"   {indent or '└ '}")


def _build_rows_of_trace(model: keras.Model) -> list[_Row]:
    return [
        (
            _describe_layer_call(assignment.layer, assignment.node_index),
            _format_output_shape(assignment.layer),
            str(assignment.pipeline_stage),
        )
        for assignment in get_pipeline_stage_assignment(model)
    ]


def _describe_layer_call(layer: keras.Layer, node_index: int, indent: str = "") -> str:
    return f"{indent}{layer.name} ({type(layer).__name__}) ({node_index})"


def _format_output_shape(layer: keras.Layer) -> str:
    """Returns the shape that Keras's summary shows of a layer that is in no graph."""
    markup = importlib.import_module("keras.src.utils.summary_utils").format_layer_shape(layer)
    return importlib.import_module("rich.text").Text.from_markup(markup).plain


def _format_table(name: str, rows: list[_Row], width: int) -> str:
    """Returns the text of the table, made by the library that Keras uses for its own."""
    table_module = importlib.import_module("rich.table")
    columns = [
        table_module.Column(title, width=int(fraction * width), overflow="fold")
        for title, fraction in zip(_HEADER, _WIDTHS, strict=True)
    ]
    table = table_module.Table(*columns, width=width, show_lines=True)
    for row in rows:
        table.add_row(*row)
    stream = io.StringIO()
    console = importlib.import_module("rich.console").Console(
        file=stream,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,  # where it would show the table itself, and write none
        markup=False,
    )
    console.print(f'Model: "{name}"', table, sep="\n", highlight=False)
    return stream.getvalue()
