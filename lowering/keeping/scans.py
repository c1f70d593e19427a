"""What the forward pass of a scan keeps for its backward pass: the fewest bytes of each iteration.

JAX stacks whatever the backward iterations read. Here they make some of it again, as backward
passes do that are no loops: of slices of what can be had, and of what is stacked instead.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Sequence
from typing import Any

from lowering.equations import renamed, variables
from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    fresh_var,
    scan_counts,
    with_eqns,
)
from lowering.keeping.choice import just_in_time, run_again


def scans_keeping_less(
    ahead: Sequence[JaxprEqn], behind: Sequence[JaxprEqn], always: Collection[Var]
) -> tuple[list[JaxprEqn], list[JaxprEqn]]:
    """A forward and a backward pass whose scans stack the fewest bytes.

    Args:
      ahead: the forward pass.
      behind: the backward pass.
      always: what that has in any case.
    """
    forward, backward = list(ahead), list(behind)
    makers = {var: i for i, eqn in enumerate(ahead) if _is_scan(eqn) for var in _stacks(eqn)}
    readers = collections.Counter(var for eqn in behind for var in set(variables(eqn.invars)))
    for place, reader in enumerate(behind):
        taken: dict[int, set[Var]] = {}
        for atom in reader.invars[sum(scan_counts(reader)) :] if _is_scan(reader) else ():
            if not isinstance(atom, Literal) and atom in makers and readers[atom] == 1:
                taken.setdefault(makers[atom], set()).add(atom)
        for i, stacks in taken.items():
            pair = _Pair(forward[i], backward[place], stacks, always)
            forward[i], backward[place] = pair.keeping_less()
    return forward, backward


def _is_scan(eqn: JaxprEqn) -> bool:
    """Whether it is a scan whose operands can be changed; JAX 0.11 says otherwise what they are."""
    is_scan = eqn.primitive.name == "scan" and "num_consts" in eqn.params
    return is_scan and not eqn.params["jaxpr"].consts


def _stacks(eqn: JaxprEqn) -> Sequence[Var]:
    return eqn.outvars[scan_counts(eqn)[1] :]


class _Pair:
    """A scan and the scan of its derivative.

    Args:
      ahead: the first.
      behind: the second.
      stacks: results of the first that nobody reads behind it but the second, element by element.
      always: what the second has in any case.
    """

    def __init__(
        self, ahead: JaxprEqn, behind: JaxprEqn, stacks: Collection[Var], always: Collection[Var]
    ) -> None:
        self.ahead, self.behind = ahead, behind
        self.body: Jaxpr = ahead.params["jaxpr"].jaxpr
        consts, carried = scan_counts(ahead)
        self.outside: dict[Var, Any] = dict(zip(self.body.invars, ahead.invars, strict=True))
        self.constants = self.body.invars[:consts]
        self.elements = self.body.invars[consts + carried :]
        pairs = zip(ahead.outvars[carried:], self.body.outvars[carried:], strict=True)
        self.left: dict[Any, Var] = {
            outer: inner for outer, inner in pairs if not isinstance(inner, Literal)
        }
        self.stacks = {var for var in stacks if var in self.left}
        always_there = (v for v in self.elements if self.outside[v] in {*always})
        self.available = {*self.constants, *always_there}

    def keeping_less(self) -> tuple[JaxprEqn, JaxprEqn]:
        """Both, with another choice of what is stacked; as they are if it saves nothing."""
        required = {self.left[var] for var in self.stacks}
        again = run_again(self.body.eqns, required - self.available, self.available)
        if not again:
            return self.ahead, self.behind
        made = {var for eqn in again for var in eqn.outvars}
        read = [*required, *variables(atom for eqn in again for atom in eqn.invars)]
        read = [var for var in dict.fromkeys(read) if var not in made]
        sliced = {var: self.outside[var] for var in self.elements if var in read}
        constant = {var: self.outside[var] for var in self.constants if var in read}
        rest = [var for var in read if var not in sliced and var not in constant]
        ahead, stacked = self._stacking(rest)
        return ahead, self._reading(again, constant, {**sliced, **stacked})

    def _stacking(self, kept: Sequence[Var]) -> tuple[JaxprEqn, dict[Var, Any]]:
        """The first scan with stacks of these values of its body, and what these are called."""
        stacked: dict[Var, Any] = {v: outer for outer, v in self.left.items() if v in kept}
        new = [var for var in kept if var not in stacked]
        length = self.ahead.params["length"]
        for var in new:
            aval: Any = var.aval
            stacked[var] = fresh_var(aval.update(shape=(length, *aval.shape)))
        body = with_eqns(self.body, self.body.eqns, [*self.body.outvars, *new])
        ahead = self.ahead.replace(
            outvars=[*self.ahead.outvars, *(stacked[var] for var in new)],
            params={**self.ahead.params, "jaxpr": ClosedJaxpr(body, ())},
        )
        return ahead, stacked

    def _reading(
        self, again: Sequence[JaxprEqn], constant: dict[Var, Any], sliced: dict[Var, Any]
    ) -> JaxprEqn:
        """The second scan, which runs equations of the first one's body again.

        Args:
          again: these.
          constant: values of that body that are the same in all iterations, by what they are.
          sliced: those of which each iteration reads its own, by what they are slices of.
        """
        eqn, body = self.behind, self.behind.params["jaxpr"].jaxpr
        consts, carried = scan_counts(eqn)
        first = consts + carried
        outer: list[Any] = list(eqn.invars)
        inner = list(body.invars)
        places = range(first, len(outer))
        stays = [i for i in places if outer[i] not in self.stacks]
        gone = ((inner[i], outer[i]) for i in places if i not in stays)
        names = {of_slice: self.left[stack] for of_slice, stack in gone}

        def arranged(all_: Sequence[Any], constants: Sequence[Any], slices: Sequence[Any]) -> Any:
            elements = [all_[i] for i in stays]
            return [*all_[:consts], *constants, *all_[consts:first], *elements, *slices]

        eqns = [each.replace(invars=renamed(each.invars, names)) for each in body.eqns]
        changed = with_eqns(body, just_in_time(again, eqns), renamed(body.outvars, names))
        changed = changed.replace(
            invars=arranged(inner, [*constant], [*sliced]),
            debug_info=body.debug_info._replace(arg_names=None),
        )
        invars = arranged(outer, [*constant.values()], [*sliced.values()])
        params = {
            **eqn.params,
            "jaxpr": ClosedJaxpr(changed, ()),
            "num_consts": consts + len(constant),
        }
        return eqn.replace(invars=invars, params=params)
