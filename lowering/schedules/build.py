"""Builds a checked schedule from a user's schedule, function, text or orders."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NotRequired, TypedDict, cast

from lowering.ground import name_source_line
from lowering.schedules.orders import Orders, from_orders
from lowering.schedules.schedule import Ipus, Schedule, ipus_of_stages
from lowering.schedules.schedule_errors import ScheduleError, check_instance, repr_or_type
from lowering.schedules.schedule_registry import add_schedule, find_registered_schedule
from lowering.schedules.schedule_text import from_text
from lowering.schedules.simulate import simulate
from lowering.schedules.task import Groups, Task

# The argument of `build`: a schedule, a function of (stages, micro_batches) that makes one, or the
# name under which one is registered.
Spec = Schedule | Callable[..., Any]

_RESULTS = "a Schedule, the text of one, or for each IPU the list of its tasks"


class _Pipeline(TypedDict):
    """The pipeline that a schedule must fit; `ipus` only where the user gives them."""

    stages: int
    micro_batches: int
    training: bool
    ipus: NotRequired[Groups]


def build(
    spec: Spec | str,
    *,
    stages: int,
    micro_batches: int,
    training: bool,
    ipus: Ipus = None,
    io_tiles: bool = False,
) -> Schedule:
    """Builds the schedule for a pipeline and simulates it.

    Args:
      spec: a schedule, the name of a registered one, or a function. It is called with
        (stages, micro_batches) and with those of the keywords `training`, `ipus` and `io_tiles`
        that its signature has. It may give a schedule, a text as `from_text` reads it, or for each
        IPU its tasks in order, as `from_orders` takes them; a task there is a Task, such a tuple,
        or a label like "2F7".
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
        pipeline["ipus"] = ipus_of_stages(stages, ipus)
    if isinstance(spec, Schedule):
        return _check_fits_pipeline(spec, pipeline)
    if isinstance(spec, str):
        spec = find_registered_schedule(spec).build
    if not callable(spec):
        raise ScheduleError(
            f"{repr_or_type(spec)} as a schedule",
            fix="give a Schedule or a function of the numbers of stages and micro-batches",
        )
    keywords = {"training": training, "ipus": pipeline.get("ipus"), "io_tiles": io_tiles}
    name, location = _name_of_function(spec), _location_of_function(spec)
    accepted = _filter_accepted_keywords(spec, keywords, name, location)
    # Errors of the function itself pass as they are: their traceback shows the user's own line.
    result = spec(stages, micro_batches, **accepted)
    try:
        return _check_fits_pipeline(_convert_to_schedule(result, name, pipeline), pipeline)
    except ScheduleError as error:
        raise ScheduleError(
            f"what `{name}` gave is no schedule for this pipeline: {error.summary}",
            grid=error.grid,
            where=location if not error.where else f"{error.where}, {location}",
            fix=error.fix,
        ) from None


def register(name: str, function: Callable[..., Any]) -> None:
    """Registers a schedule of your own under a name.

    `build`, `pipeline_schedule`, `ipu.compare`, `value_and_grad` and `ipu.plan` then take the name.
    A second function under the name takes the place of the first.

    Args:
      name: letters, digits and underscores, as `my_schedule`.
      function: as `build` takes it: of (stages, micro_batches), and of those keywords that it has.

    Raises:
      ScheduleError: a name that a schedule of ipujax has or that cannot be one, or no function.
    """
    check_instance(name, str, "the name of a schedule")
    if not callable(function):
        raise ScheduleError(
            f"{repr_or_type(function)} as a schedule",
            fix="give a function of the numbers of stages and micro-batches",
        )

    def build_registered(
        stages: int, micro_batches: int, *, training: bool = True, ipus: Ipus = None
    ) -> Schedule:
        return build(
            function, stages=stages, micro_batches=micro_batches, training=training, ipus=ipus
        )

    build_registered.__name__ = name
    add_schedule(name, build_registered, splits_backward=_splits_backward(build_registered))


def _splits_backward(build_registered: Callable[..., Schedule]) -> bool:
    """Returns whether a schedule makes gradients of weights in tasks of their own."""
    try:
        return build_registered(2, 8).splits_backward
    except ScheduleError:  # it does not have these numbers
        return False


def _filter_accepted_keywords(
    function: Callable[..., Any], keywords: Mapping[str, Any], name: str, location: str
) -> dict[str, Any]:
    """Returns the keywords that the function's signature has."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have none
        return {}
    parameters = signature.parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    parameter_names = {
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    accepted_keywords = {
        key: value for key, value in keywords.items() if takes_all or key in parameter_names
    }
    try:
        signature.bind(0, 0, **accepted_keywords)
    except TypeError as error:
        raise ScheduleError(
            f"`{name}{signature}` cannot be called with the numbers of stages and micro-batches: "
            f"{error}",
            where=location,
            fix="take (stages, micro_batches), and as keywords any of training, ipus, io_tiles",
        ) from None
    return accepted_keywords


def _convert_to_schedule(result: Any, name: str, pipeline: _Pipeline) -> Schedule:
    if isinstance(result, Schedule):
        return result
    if isinstance(result, str):
        return from_text(result)
    if isinstance(result, Mapping):
        by_ipu = cast(Mapping[Any, Any], result)
        orders: Orders = {ipu: _tasks_of_order(order) for ipu, order in by_ipu.items()}
    elif isinstance(result, Iterable):
        orders = map(_tasks_of_order, cast(Iterable[Any], result))
    else:
        raise ScheduleError(f"it gave {repr_or_type(result)}", fix=f"give {_RESULTS}")
    return from_orders(name, orders, **pipeline)


def _tasks_of_order(order: Any) -> Iterable[Any]:
    if isinstance(order, str):  # labels apart by spaces
        return order.split()
    if isinstance(order, Task) or not isinstance(order, Iterable):
        raise ScheduleError(
            f"it gave {repr_or_type(order)} as the order of an IPU", fix=f"give {_RESULTS}"
        )
    return cast(Iterable[Any], order)


def _check_fits_pipeline(schedule: Schedule, pipeline: _Pipeline) -> Schedule:
    """Raises if a schedule does not have the pipeline's numbers, or does not work."""
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


def _name_of_function(function: Callable[..., Any]) -> str:
    plain_function = getattr(function, "func", function)  # functools.partial
    return getattr(plain_function, "__name__", type(plain_function).__name__)


def _location_of_function(function: Callable[..., Any]) -> str:
    """Returns the user's file and line of a function, or an empty string."""
    plain_function: Any = inspect.unwrap(getattr(function, "func", function))
    code = getattr(plain_function, "__code__", None)
    return name_source_line(code.co_filename, code.co_firstlineno) if code else ""
