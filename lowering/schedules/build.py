"""From what a user gives as a schedule, to one that is known to work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NotRequired, TypedDict, cast

from lowering.places import line_of_file
from lowering.schedules.errors import ScheduleError, shown
from lowering.schedules.orders import Orders, from_orders
from lowering.schedules.schedule import Ipus, Schedule, place
from lowering.schedules.simulate import simulate
from lowering.schedules.task import Groups, Task
from lowering.schedules.text import from_text

# What `build` takes: a schedule, or a function of (stages, micro_batches) that makes one.
Spec = Schedule | Callable[..., Any]

_RESULTS = "a Schedule, the text of one, or for each IPU the list of its tasks"


class _Pipeline(TypedDict):
    """What a schedule must be for; `ipus` only where the user says so."""

    stages: int
    micro_batches: int
    training: bool
    ipus: NotRequired[Groups]


def build(
    spec: Spec,
    *,
    stages: int,
    micro_batches: int,
    training: bool,
    ipus: Ipus = None,
    io_tiles: bool = False,
) -> Schedule:
    """The schedule for a pipeline, simulated.

    Args:
      spec: a schedule, or a function. It is called with (stages, micro_batches) and with those of
        the keywords `training`, `ipus` and `io_tiles` that its signature has. It may give a
        schedule, a text as `from_text` reads it, or for each IPU its tasks in order, as
        `from_orders` takes them; a task there is a Task, such a tuple, or a label like "2F7".
      stages: the forward stages.
      micro_batches: how many there are.
      training: whether there are backward tasks.
      ipus: an IPU, or several, for every stage; None leaves it to the schedule.
      io_tiles: whether tiles are reserved for transfers.

    Raises:
      ScheduleError: a schedule for another pipeline, or that no pipeline can follow; it names the
        function that made it.
    """
    pipeline = _Pipeline(stages=stages, micro_batches=micro_batches, training=training)
    if ipus is not None:
        pipeline["ipus"] = place(stages, ipus)
    if isinstance(spec, Schedule):
        return _checked(spec, pipeline)
    if not callable(spec):
        raise ScheduleError(
            f"{shown(spec)} as a schedule",
            fix="give a Schedule or a function of the numbers of stages and micro-batches",
        )
    keywords = {"training": training, "ipus": pipeline.get("ipus"), "io_tiles": io_tiles}
    name, where = _name(spec), _line(spec)
    accepted = _accepted(spec, keywords, name, where)
    # Errors of the function itself pass as they are: their traceback shows the user's own line.
    made = spec(stages, micro_batches, **accepted)
    try:
        return _checked(_as_schedule(made, name, pipeline), pipeline)
    except ScheduleError as error:
        raise ScheduleError(
            f"what `{name}` gave is no schedule for this pipeline: {error.summary}",
            grid=error.grid,
            where=where if not error.where else f"{error.where}, {where}",
            fix=error.fix,
        ) from None


def _accepted(
    function: Callable[..., Any], keywords: Mapping[str, Any], name: str, where: str
) -> dict[str, Any]:
    """The keywords that the function's signature has."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have none
        return {}
    parameters = signature.parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = {
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    accepted = {key: value for key, value in keywords.items() if takes_all or key in named}
    try:
        signature.bind(0, 0, **accepted)
    except TypeError as error:
        raise ScheduleError(
            f"`{name}{signature}` cannot be called with the numbers of stages and micro-batches: "
            f"{error}",
            where=where,
            fix="take (stages, micro_batches), and as keywords any of training, ipus, io_tiles",
        ) from None
    return accepted


def _as_schedule(made: Any, name: str, pipeline: _Pipeline) -> Schedule:
    if isinstance(made, Schedule):
        return made
    if isinstance(made, str):
        return from_text(made)
    if isinstance(made, Mapping):
        by_ipu = cast(Mapping[Any, Any], made)
        orders: Orders = {ipu: _tasks(order) for ipu, order in by_ipu.items()}
    elif isinstance(made, Iterable):
        orders = map(_tasks, cast(Iterable[Any], made))
    else:
        raise ScheduleError(f"it gave {shown(made)}", fix=f"give {_RESULTS}")
    return from_orders(name, orders, **pipeline)


def _tasks(order: Any) -> Iterable[Any]:
    if isinstance(order, str):  # labels apart by spaces
        return order.split()
    if isinstance(order, Task) or not isinstance(order, Iterable):
        raise ScheduleError(
            f"it gave {shown(order)} as the order of an IPU", fix=f"give {_RESULTS}"
        )
    return cast(Iterable[Any], order)


def _checked(schedule: Schedule, pipeline: _Pipeline) -> Schedule:
    """Raises if a schedule is for other numbers than those of the pipeline, or does not work."""
    for key, value in pipeline.items():
        got = getattr(schedule, key)
        if got != value:
            raise ScheduleError(
                f"the schedule {schedule.name} has {key}={got}, the pipeline {key}={value}",
                fix=f"make the schedule for {key}={value} (a function that makes it may take "
                f"`{key}`), or change the pipeline",
            )
    simulate(schedule)
    return schedule


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)  # functools.partial
    return getattr(inner, "__name__", type(inner).__name__)


def _line(function: Callable[..., Any]) -> str:
    """The user's file and line of a function, or an empty string."""
    inner: Any = inspect.unwrap(getattr(function, "func", function))
    code = getattr(inner, "__code__", None)
    return line_of_file(code.co_filename, code.co_firstlineno) if code else ""
