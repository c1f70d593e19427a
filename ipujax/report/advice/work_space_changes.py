"""The changes that leave products and convolutions less work space.

The options of a pipeline's stage override those of the whole program, and a stage with memory to
spare is not to be slowed down: in pipelines, the options of the stages that lack memory change.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterator, Mapping, Sequence

from ipujax.report.advice.change import Case, Change
from ipujax.report.advice.findings import bytes_to_free
from lowering import machine, pipelines, variants

_DEFAULT_PROPORTION = 0.6  # Poplar's availableMemoryProportion
_PARTS = (2, 6, 20)  # of it, to be tried one after the other
_OPTION = "availableMemoryProportion"


@dc.dataclass(frozen=True, slots=True)
class _Planned:
    """A kind of operation whose plans keep to a proportion of memory.

    Attributes:
      setting: the configuration's option for all of them.
      group: the Poplar options of a stage.
      field: the proportion among the planner's options.
    """

    setting: str
    group: str
    field: str

    def proportion_in(self, plans: machine.PlanOptions) -> float:
        """Returns the proportion that these options of the planner ask for."""
        proportion: float | None = getattr(plans, self.field)
        return _DEFAULT_PROPORTION if proportion is None else proportion


_PLANNED = {
    "dot_general": _Planned("matmuls.poplar_options", "matmul_options", "matmul_proportion"),
    "conv_general_dilated": _Planned(
        "convolutions.poplar_options", "convolution_options", "convolution_proportion"
    ),
}


def list_work_space_changes(case: Case, profile: machine.Profile) -> Iterator[Change]:
    """Offers a lower proportion of memory: of the stages that lack it, or of the whole program.

    Args:
      case: the program as it is.
      profile: its modelled profile.
    """
    names = {operation.name.split()[0] for operation in profile.operations}
    products = [planned for name, planned in _PLANNED.items() if name in names]
    if not products:
        return
    specs = _tasks_that_lack_memory(case, profile)
    change = (
        _lower_proportions_of_stages(case, products, specs, _PARTS)
        if specs
        else _lower_proportions_of_program(case, products, _PARTS)
    )
    if change is not None:
        yield change


def _tasks_that_lack_memory(case: Case, profile: machine.Profile) -> list[pipelines.TaskSpec]:
    """Returns the tasks of the stages on IPUs that lack memory, if there is one pipeline."""
    found = [] if case.source is None else variants.pipelines_of(case.source.closed)
    if case.source is None or len(found) != 1:
        return []
    needs = bytes_to_free(profile.memory)
    everywhere = tuple(range(profile.num_ipus))
    lacking = {
        stage
        for stage, ipus in enumerate(found[0].ipus)
        if any(needs[ipu] for ipu in ipus or everywhere)
    }
    return [spec for spec in variants.task_specs_of(case.source.closed) if spec.stage in lacking]


def _lower_proportions_of_stages(
    case: Case,
    products: Sequence[_Planned],
    specs: Sequence[pipelines.TaskSpec],
    divisors: Sequence[int],
) -> Change | None:
    """Returns the change that divides the proportions of some tasks; None if that makes one zero.

    Args:
      case: the program as it is.
      products: the kinds of operations to be planned with less.
      specs: the tasks; those of one stage get the same proportion.
      divisors: the first is taken, then the others when stronger.
    """
    if not divisors:
        return None
    proportions_now: dict[tuple[int, _Planned], set[float]] = {}
    for spec in specs:
        plans = machine.plan_options_of_stage(spec, case.options.plans)
        for planned in products:
            values = proportions_now.setdefault((spec.stage, planned), set())
            values.add(planned.proportion_in(plans))
    proportions = {
        key: round(min(values) / divisors[0], 3) for key, values in proportions_now.items()
    }
    if not all(proportions.values()):
        return None
    stages = sorted({stage for stage, _ in proportions})
    return Change(
        "less_work_space",
        f'a lower "{_OPTION}" in the forward and backward PipelineStageOptions of stages that lack '
        f"memory: {_describe_stages(proportions, proportions_now)}",
        f"{_OPTION} {min(proportions.values()):g} in {_name_stages(stages)}",
        lambda case: case.with_task_specs(lambda spec: _set_proportions(spec, proportions)),
        make_stronger=lambda: _lower_proportions_of_stages(case, products, specs, divisors[1:]),
    )


def _describe_stages(
    proportions: Mapping[tuple[int, _Planned], float],
    proportions_now: Mapping[tuple[int, _Planned], set[float]],
) -> str:
    """Describes the new and the present proportions, those of equal stages together."""
    stages_of_text: dict[tuple[str, str], list[int]] = {}
    for (stage, planned), proportion in proportions.items():
        now = " and ".join(f"{value:g}" for value in sorted(proportions_now[stage, planned]))
        key = f"{proportion:g} in {planned.group} of", f"(now {now})"
        stages_of_text.setdefault(key, []).append(stage)
    return ", ".join(
        f"{text} {_name_stages(sorted(stages))} {now}"
        for (text, now), stages in stages_of_text.items()
    )


def _name_stages(stages: Sequence[int]) -> str:
    *first, last = map(str, stages)
    return f"stages {', '.join(first)} and {last}" if first else f"stage {last}"


def _set_proportions(
    spec: pipelines.TaskSpec, proportions: Mapping[tuple[int, _Planned], float]
) -> pipelines.TaskSpec:
    """Returns the specification of a task with the proportions of its stage, if there are any."""
    groups = {group: dict(options) for group, options in spec.options}
    for (stage, planned), proportion in proportions.items():
        if stage == spec.stage:
            groups.setdefault(planned.group, {})[_OPTION] = f"{proportion:g}"
    options = tuple((group, tuple(options.items())) for group, options in groups.items())
    return dc.replace(spec, options=options)


def _lower_proportions_of_program(
    case: Case, products: Sequence[_Planned], divisors: Sequence[int]
) -> Change | None:
    """Returns the change that divides the proportions of all operations; None if one gets zero."""
    if not divisors:
        return None
    proportions_now = {planned: planned.proportion_in(case.options.plans) for planned in products}
    proportions = {
        planned: round(value / divisors[0], 3) for planned, value in proportions_now.items()
    }
    if not all(proportions.values()):
        return None
    option_values = " and ".join(
        f"{value:g} in {planned.setting} (now {proportions_now[planned]:g})"
        for planned, value in proportions.items()
    )
    return Change(
        "less_work_space",
        f'a lower "{_OPTION}": {option_values}',
        f"{_OPTION} {min(proportions.values()):g}",
        _change_plan_proportions({planned.field: value for planned, value in proportions.items()}),
        make_stronger=lambda: _lower_proportions_of_program(case, products, divisors[1:]),
    )


def _change_plan_proportions(proportions: Mapping[str, float]) -> Callable[[Case], Case]:
    def set_plan_proportions(case: Case) -> Case:
        plans = dc.replace(case.options.plans, **proportions)
        return dc.replace(case, options=dc.replace(case.options, plans=plans))

    return set_plan_proportions
