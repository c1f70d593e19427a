"""The choice of the values that a scan's forward pass keeps for its backward pass.

JAX stacks all values that the backward iterations read. Here they recompute some of them from
slices of available values and from fewer stacks, as the backward pass of straight code does.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from lowering.jaxprs import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    count_scan_constants_and_variables,
    fresh_var,
    rename_atoms,
    replace_equations,
    unique_variables,
)
from lowering.keeping.choice import (
    insert_recomputation_before_readers,
    select_equations_to_recompute,
)


def reduce_stacks_of_scans(
    forward_eqns: Sequence[JaxprEqn],
    backward_eqns: Sequence[JaxprEqn],
    available: Collection[Var],
    test_for: Callable[[Iterable[JaxprEqn]], Callable[[JaxprEqn], bool]],
) -> tuple[list[JaxprEqn], list[JaxprEqn]]:
    """Returns a forward and a backward pass whose scans stack the fewest bytes.

    Args:
      forward_eqns: the forward pass.
      backward_eqns: the backward pass.
      available: the values that the backward pass has in any case.
      test_for: returns, for the equations of a backward pass, the test of whether an equation may
        run twice.
    """
    forward, backward = list(forward_eqns), list(backward_eqns)
    scan_of_stack = {
        var: i
        for i, eqn in enumerate(forward_eqns)
        if _is_scan(eqn)
        for var in _stacks_of_scan(eqn)
    }
    readers = collections.Counter(
        var for eqn in backward_eqns for var in set(unique_variables(eqn.invars))
    )
    for index, reader in enumerate(backward_eqns):
        stacks_by_producer: dict[int, set[Var]] = {}
        for atom in (
            reader.invars[sum(count_scan_constants_and_variables(reader)) :]
            if _is_scan(reader)
            else ()
        ):
            if not isinstance(atom, Literal) and atom in scan_of_stack and readers[atom] == 1:
                stacks_by_producer.setdefault(scan_of_stack[atom], set()).add(atom)
        for i, stacks in stacks_by_producer.items():
            pair = _Pair(forward[i], backward[index], stacks, available, test_for)
            forward[i], backward[index] = pair.reduce_stacks()
    return forward, backward


def _is_scan(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a scan whose operands can be changed (JAX before 0.11)."""
    is_scan = eqn.primitive.name == "scan" and "num_consts" in eqn.params
    return is_scan and not eqn.params["jaxpr"].consts


def _stacks_of_scan(eqn: JaxprEqn) -> Sequence[Var]:
    return eqn.outvars[count_scan_constants_and_variables(eqn)[1] :]


class _Pair:
    """A scan and the scan of its derivative.

    Args:
      forward: the first scan.
      backward: the scan of its derivative.
      stacks: stacked results of the first that only the second reads, element by element.
      available: the values that the second has in any case.
      test_for: as in `reduce_stacks_of_scans`.
    """

    def __init__(
        self,
        forward: JaxprEqn,
        backward: JaxprEqn,
        stacks: Collection[Var],
        available: Collection[Var],
        test_for: Callable[[Iterable[JaxprEqn]], Callable[[JaxprEqn], bool]],
    ) -> None:
        self.ahead, self.behind = forward, backward
        self.body: Jaxpr = forward.params["jaxpr"].jaxpr
        consts, carried = count_scan_constants_and_variables(forward)
        self.outside: dict[Var, Any] = dict(zip(self.body.invars, forward.invars, strict=True))
        self.constants = self.body.invars[:consts]
        self.elements = self.body.invars[consts + carried :]
        pairs = zip(forward.outvars[carried:], self.body.outvars[carried:], strict=True)
        self.left: dict[Any, Var] = {
            stack: result for stack, result in pairs if not isinstance(result, Literal)
        }
        self.stacks = {var for var in stacks if var in self.left}
        available_elements = (v for v in self.elements if self.outside[v] in {*available})
        self.available = {*self.constants, *available_elements}
        behind: Jaxpr = backward.params["jaxpr"].jaxpr
        self.result_of_slice: dict[Var, Any] = {
            of_slice: self.left[stack]
            for of_slice, stack in zip(behind.invars, backward.invars, strict=True)
            if not isinstance(stack, Literal) and stack in self.stacks
        }
        self.backward_eqns = [
            eqn.replace(invars=rename_atoms(eqn.invars, self.result_of_slice))
            for eqn in behind.eqns
        ]
        self.may_run_twice = test_for(self.backward_eqns)

    def reduce_stacks(self) -> tuple[JaxprEqn, JaxprEqn]:
        """Returns both scans with the fewest bytes stacked; unchanged if nothing is saved."""
        required = {self.left[var] for var in self.stacks}
        recomputed = select_equations_to_recompute(
            self.body.eqns, required - self.available, self.available, self.may_run_twice
        )
        if not recomputed:
            return self.ahead, self.behind
        recomputed_values = {var for eqn in recomputed for var in eqn.outvars}
        values_read = [
            *required,
            *unique_variables(atom for eqn in recomputed for atom in eqn.invars),
        ]
        values_read = [var for var in dict.fromkeys(values_read) if var not in recomputed_values]
        stack_of_element = {var: self.outside[var] for var in self.elements if var in values_read}
        operand_of_constant = {
            var: self.outside[var] for var in self.constants if var in values_read
        }
        values_to_stack = [
            var
            for var in values_read
            if var not in stack_of_element and var not in operand_of_constant
        ]
        forward, stack_of_value = self._stack_values_in_forward_scan(values_to_stack)
        return forward, self._recompute_in_backward_scan(
            recomputed, operand_of_constant, {**stack_of_element, **stack_of_value}
        )

    def _stack_values_in_forward_scan(
        self, values_to_stack: Sequence[Var]
    ) -> tuple[JaxprEqn, dict[Var, Any]]:
        """Returns the first scan with stacks of these values, and the stack of each value."""
        stack_of_value: dict[Var, Any] = {
            v: stack for stack, v in self.left.items() if v in values_to_stack
        }
        new_values = [var for var in values_to_stack if var not in stack_of_value]
        length = self.ahead.params["length"]
        for var in new_values:
            aval: Any = var.aval
            stack_of_value[var] = fresh_var(aval.update(shape=(length, *aval.shape)))
        body = replace_equations(self.body, self.body.eqns, [*self.body.outvars, *new_values])
        forward = self.ahead.replace(
            outvars=[*self.ahead.outvars, *(stack_of_value[var] for var in new_values)],
            params={**self.ahead.params, "jaxpr": ClosedJaxpr(body, ())},
        )
        return forward, stack_of_value

    def _recompute_in_backward_scan(
        self,
        recomputed: Sequence[JaxprEqn],
        operand_of_constant: dict[Var, Any],
        stack_of_element: dict[Var, Any],
    ) -> JaxprEqn:
        """Returns the second scan, which runs equations of the first one's body again.

        Args:
          recomputed: the equations to run again.
          operand_of_constant: for each value of that body that is the same in all iterations, the
            operand of the first scan that it is.
          stack_of_element: for each other value, the stack that it is a slice of.
        """
        eqn, body = self.behind, self.behind.params["jaxpr"].jaxpr
        consts, carried = count_scan_constants_and_variables(eqn)
        first = consts + carried
        scan_invars: list[Any] = list(eqn.invars)
        body_invars = list(body.invars)
        element_positions = range(first, len(scan_invars))
        kept_positions = [i for i in element_positions if scan_invars[i] not in self.stacks]

        def arrange_operands(
            old_operands: Sequence[Any], constants: Sequence[Any], slices: Sequence[Any]
        ) -> Any:
            elements = [old_operands[i] for i in kept_positions]
            return [
                *old_operands[:consts],
                *constants,
                *old_operands[consts:first],
                *elements,
                *slices,
            ]

        changed = replace_equations(
            body,
            insert_recomputation_before_readers(recomputed, self.backward_eqns),
            rename_atoms(body.outvars, self.result_of_slice),
        )
        changed = changed.replace(
            invars=arrange_operands(body_invars, [*operand_of_constant], [*stack_of_element]),
            debug_info=body.debug_info._replace(arg_names=None),
        )
        invars = arrange_operands(
            scan_invars, [*operand_of_constant.values()], [*stack_of_element.values()]
        )
        params = {
            **eqn.params,
            "jaxpr": ClosedJaxpr(changed, ()),
            "num_consts": consts + len(operand_of_constant),
        }
        return eqn.replace(invars=invars, params=params)
