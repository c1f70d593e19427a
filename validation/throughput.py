"""Training throughput of published models on Pods, in the configurations that were published.

A Pod's items per second are replicas x micro-batches x micro-batch size / seconds of one update,
the reduction over replicas included. Updates have as many micro-batches as the global batch asks
for.
"""

from __future__ import annotations

from ipujax.pipelining_ops import PipelineSchedule
from lowering.machine import Target
from validation.models.variables import stage_shapes
from validation.program import as_popart, predict_program, training_pipeline
from validation.published import Setup, setup_of
from validation.row import Prediction, Row, SkipError

UPDATES = 100
"""Of one call, so that what it takes to load the variables does not count."""


def predict(row: Row) -> Prediction | None:
    """The throughput (or the time to train) that the row's model has on its Pod."""
    setup = setup_of(row)
    if setup is None or row.workload.get("phase") == "inference":
        return None
    replicas = row.ipus // setup.ipus
    if replicas < 1:
        raise SkipError(f"{row.ipus} IPUs are fewer than the {setup.ipus} of one replica")
    multiple = 2 * len(setup.stages) if setup.schedule is PipelineSchedule.Grouped else 1
    count = max(1, round(setup.global_batch / (setup.micro_batch * replicas)))
    count = -(-count // multiple) * multiple
    cycles = _update_cycles(setup, count, replicas, row.target)
    items = replicas * count * setup.micro_batch * setup.per_example
    if row.unit.startswith("min"):  # the time of all epochs, not of an update
        cycles *= _samples_to_train(row) / items
    return Prediction(cycles=cycles, items=items, assumptions=setup.assumptions)


_known: dict[tuple[object, ...], float] = {}


def _update_cycles(setup: Setup, count: int, replicas: int, target: Target) -> float:
    """Cycles of one update of so many micro-batches; rows that ask for the same share them."""
    key = (
        setup.model,
        str(setup.element),
        setup.ipus,
        setup.dtype,
        setup.proportions,
        setup.partials,
        setup.popart,
        count,
        replicas,
        target,
    )
    if key in _known:
        return _known[key]
    train = training_pipeline(
        [as_popart(stage) for stage in setup.stages] if setup.popart else setup.stages,
        setup.element,
        count,
        setup.optimizer,
        dtype=setup.dtype,
        devices=setup.devices,
        proportions=setup.proportions,
        pipeline_schedule=setup.schedule,
        offload_weight_update_variables=setup.offload,
        partials=setup.partials,
        repeat_count=UPDATES,
    )
    variables = stage_shapes(list(setup.stages), setup.dtype, *setup.element)
    profile = predict_program(
        train,
        (variables,),
        target,
        replicas * setup.ipus,
        True,
    )
    _known[key] = profile.cycles / UPDATES
    return _known[key]


def _samples_to_train(row: Row) -> float:
    """ImageNet's images times the epochs of resnet50_mlperf_*: with momentum in v1.0, then LARS."""
    if "resnet-50" not in row.text:
        raise SkipError("how many samples the time covers is not known")
    momentum, lars = (44, 38) if row.ipus <= 32 else (41, 40)
    return 1_281_167 * (momentum if "v1.0" in row.text else lars)
