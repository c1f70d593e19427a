"""PopLibs' loops: programs that repeat, with a counter on the device."""

from __future__ import annotations

from typing import Any

from ipujax.poplar import program
from ipujax.poplar.element_types import INT, UNSIGNED_INT
from ipujax.poplar.exceptions import check, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import title_of
from ipujax.poplar.popops_elementwise import FORMS
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line

_, _add_in_place, _ = FORMS["add"]
_new_less_than = FORMS["lt"][0]


@check.guard
def countedLoop(
    graph: Graph, begin: int, end: Any, step: Any = "", body: Any = None, debugContext: str = ""
) -> Sequence:
    """Returns a program that repeats another with a counter.

    Call it as `countedLoop(graph, begin, end, step, body, name)`, or as `countedLoop(graph, count,
    body, name)`, which counts from 0 on in steps of 1.

    Args:
      graph: the graph.
      begin: the counter's first value; or the count.
      end: the value before which it ends; or the body.
      step: the counter's increment; or the name.
      body: a function of the counter, an UNSIGNED_INT tensor of one element, that returns the
        program.
      debugContext: a name.

    Raises:
      poplar_error: a step that is not positive, or a loop that never runs.
    """
    if callable(end):
        return countedLoop(graph, 0, begin, 1, end, step or debugContext)
    body = check.require_function(body, "body")
    name = title_of("countedLoop", debugContext)
    first = check.require_integer(begin, "begin", at_least=0)
    last = check.require_integer(end, "end", at_least=first + 1)
    by = check.require_integer(step, "step", at_least=1)
    counter = graph.addVariable(UNSIGNED_INT, [1], f"{name}/counter")
    graph.setTileMapping(counter, 0)
    steps = Sequence(program.require_program(body(counter)))
    _add_in_place(graph, counter, by, steps)
    start = _add_scalar(graph, counter, first, "begin").reshape([1])
    return Sequence(program.Copy(start, counter), program.Repeat(-(-(last - first) // by), steps))


@check.guard
def countedForLoop(graph: Graph, *arguments: Any, debugContext: str = "") -> Sequence:
    """Returns a program that repeats another until a counter is no longer below a limit.

    Args:
      graph: the graph.
      *arguments: the counter, a scalar tensor of INT or UNSIGNED_INT, which may be left out; its
        first value; the limit, a scalar tensor of that type; its step; the program; a name.
      debugContext: a name.
    """
    if not arguments or not isinstance(arguments[0], Tensor):
        arguments = (None, *arguments)
    if len(arguments) not in (5, 6):
        raise check.type_error(
            "countedForLoop does not have the right arguments",
            "call it as countedForLoop(graph, count, initialCount, countLimit, countStep, body)",
        )
    count, first, limit, by, body, *names = arguments
    name = title_of("countedForLoop", [*names, debugContext][0])
    limit = check.require_instance(limit, Tensor, "countLimit")
    if count is None:
        count = graph.addVariable(limit.type, [], f"{name}/count")
        graph.setTileMapping(count, 0)
    if count.type != limit.type or count.type not in (INT, UNSIGNED_INT):
        raise type_error(
            f"a loop from {count} to {limit}", where=user_line(), fix="give two of INT"
        )
    by = check.require_integer(by, "countStep")
    start = _add_scalar(graph, count, check.require_integer(first, "initialCount"), "initialCount")
    condition = Sequence()
    goes_on = _new_less_than(graph, count.reshape([]), limit.reshape([]), condition, name)
    steps = Sequence(program.require_program(body))
    _add_in_place(graph, count, by, steps, name)
    loop = program.RepeatWhileTrue(condition, goes_on, steps)
    return Sequence(program.Copy(start, count.reshape([])), loop)


def _add_scalar(graph: Graph, counter: Tensor, value: int, name: str) -> Tensor:
    constant = graph.addConstant(counter.type, [], value, name)
    graph.setTileMapping(constant, 0)
    return constant
