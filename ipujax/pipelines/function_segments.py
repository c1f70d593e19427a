"""The steps of a traced function, and the segments of them between which it may be cut."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from ipujax.pipelines.micro_batch_arguments import Role
from ipujax.pipelines.traced_function import TracedFunction
from lowering import jaxpr, pipelines, size_in_bytes


@dc.dataclass(frozen=True, eq=False)
class Step:
    """An equation, or one iteration of a scan over layers, that belongs to a stage as a whole.

    Attributes:
      eqn: the equation.
      iteration: the number of the iteration; None for an equation that is not cut.
      bytes_after: the bytes that pass to later steps if the function is cut after it.
      is_product: whether it is a product, or a lookup in a table of parameters.
      may_end: whether a segment may end with it.
    """

    eqn: jaxpr.JaxprEqn
    iteration: int | None
    bytes_after: int
    is_product: bool
    may_end: bool = True


def segment_function(function: TracedFunction) -> tuple[TracedFunction, list[Step], list[int]]:
    """Returns a function without calls of jitted ones, its steps, and where segments begin."""
    function = inline_calls(function)
    steps = list_steps(function, equations_of_stages(function))
    return function, steps, list_segments(steps)


def inline_calls(function: TracedFunction) -> TracedFunction:
    """Returns a function without calls of jitted ones."""
    return dc.replace(function, closed=pipelines.inline_jitted_calls(function.closed))


def equations_of_stages(function: TracedFunction) -> list[jaxpr.JaxprEqn]:
    """Lists what can be in a stage: equations that depend on parameters and the micro-batch."""
    with_parameters, with_elements = _variables_with_parameters_and_elements(function)
    return [
        eqn
        for eqn in function.closed.jaxpr.eqns
        if not with_parameters.isdisjoint(eqn.outvars)
        and (with_elements is None or not with_elements.isdisjoint(eqn.outvars))
    ]


def _variables_with_parameters_and_elements(
    function: TracedFunction,
) -> tuple[set[jaxpr.Var], set[jaxpr.Var] | None]:
    """Returns the variables that depend on parameters, and those on elements of the micro-batch.

    The second is None if no argument is split.
    """
    eqns, leaves = function.closed.jaxpr.eqns, function.leaves_by_variable()
    parameters = [v for v, a in leaves.items() if a.role in (Role.DIFFERENTIATED, Role.WHOLE)]
    elements = [v for v, a in leaves.items() if a.role in (Role.SPLIT, Role.FOLDED)]
    with_elements = pipelines.variables_depending_on(eqns, elements) if elements else None
    return pipelines.variables_depending_on(eqns, parameters), with_elements


def list_steps(function: TracedFunction, eqns: Sequence[jaxpr.JaxprEqn]) -> list[Step]:
    """Lists the steps of some equations of a function, with the bytes that pass behind each."""
    with_parameters, with_elements = _variables_with_parameters_and_elements(function)
    tables = with_parameters.difference(with_elements or ())
    passing = pipelines.bytes_between_equations(eqns)
    steps: list[Step] = []
    for number, eqn in enumerate(eqns):
        count = _number_of_layers(eqn)
        is_product = pipelines.has_product(eqn) or _looks_up(eqn, tables)
        if count is not None:
            sizes = _list_bytes_between_iterations(eqns, number)
            steps += [Step(eqn, i, size, is_product) for i, size in enumerate(sizes)]
        last = None if count is None else count - 1
        steps.append(Step(eqn, last, int(passing[number + 1]), is_product))
    return steps


def _looks_up(eqn: jaxpr.JaxprEqn, tables: set[jaxpr.Var]) -> bool:
    """Returns whether an equation takes rows of a table, as an embedding does."""
    return eqn.primitive.name == "gather" and eqn.invars[0] in tables


def _number_of_layers(eqn: jaxpr.JaxprEqn) -> int | None:
    """Returns the number of iterations of a scan over layers; None for any other equation."""
    if eqn.primitive.name != "scan" or eqn.params["length"] < 2 or eqn.effects:
        return None
    num_consts, num_carry = jaxpr.count_scan_constants_and_variables(eqn)
    has_layers = len(eqn.invars) > num_consts + num_carry
    return eqn.params["length"] if has_layers and pipelines.has_product(eqn) else None


def _list_bytes_between_iterations(eqns: Sequence[jaxpr.JaxprEqn], number: int) -> list[int]:
    """Lists the bytes that pass each boundary between iterations of a scan, `eqns[number]`.

    That is what it carries, and what equations before it compute that all iterations or equations
    behind it read; of computed slices those to come, and of stacked results those made by then.
    """
    scan = eqns[number]
    num_consts, num_carry = jaxpr.count_scan_constants_and_variables(scan)
    first_slices, length = num_consts + num_carry, int(scan.params["length"])
    computed_before = {v for eqn in eqns[:number] for v in eqn.outvars}
    later = {*pipelines.unique_variables([a for eqn in eqns[number + 1 :] for a in eqn.invars])}
    constants = pipelines.unique_variables(scan.invars[:num_consts])
    whole_values = computed_before & later.union(constants)
    slices = [
        v for v in pipelines.unique_variables(scan.invars[first_slices:]) if v in computed_before
    ]
    constant = sum(
        size_in_bytes(v.aval) for v in [*whole_values, *scan.invars[num_consts:first_slices]]
    )
    coming = sum(size_in_bytes(v.aval) for v in slices if v not in whole_values)
    stacked = sum(size_in_bytes(v.aval) for v in scan.outvars[num_carry:] if v in later)
    return [
        constant + (coming * (length - done) + stacked * done) // length
        for done in range(1, length)
    ]


def list_segments(steps: Sequence[Step]) -> list[int]:
    """Returns the steps at which segments begin, the first of which is 0.

    A segment ends between one product and the next, where the fewest bytes pass; of equal places
    it is the last, since a nonlinearity belongs to the product before it.
    """
    starts, cheapest, has_product = [0], None, False
    for number, step in enumerate(steps):
        if step.is_product:
            has_product = True
            if cheapest is not None:
                starts.append(cheapest + 1)
                cheapest = None
        if (
            has_product
            and step.may_end
            and (cheapest is None or step.bytes_after <= steps[cheapest].bytes_after)
        ):
            cheapest = number
    return starts
