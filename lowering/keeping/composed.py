"""Functions that Popnn and PopART have as single operations, whose gradients keep one array.

JAX composes them of elementwise operations, and its derivative keeps what each of those needs:
three arrays for a gelu, two for a softmax. Popnn's gradient of a nonlinearity, and PopART's of the
same operators, reads the input or the result and computes the rest itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from lowering import marks
from lowering.jaxprs import (
    JITTED,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    Var,
    add_innermost_scope,
    name_stack,
    names_of_calling_functions,
    rewrite_equations,
    unique_variables,
)
from lowering.keeping.choice import is_cheap_to_recompute

# By what their gradients read: Popnn's NonLinearityType, and what else PopART has of the kind.
_WITH_GRADIENT_OF_INPUT = frozenset({
    "celu", "elu", "gelu", "geluerf", "hardsigmoid", "selu", "silu", "softplus", "softsign",
    "swish",
})  # fmt: skip
_WITH_GRADIENT_OF_RESULT = frozenset({"logsoftmax", "sigmoid", "softmax"})
_COMPOSED = _WITH_GRADIENT_OF_INPUT | _WITH_GRADIENT_OF_RESULT


def cheap_in_composed_functions(
    backward_eqns: Iterable[JaxprEqn],
) -> Callable[[JaxprEqn], bool]:
    """Returns a test: may an equation run twice although recomputation was not asked for?

    Cheap equations inside composed functions may, and casts. But the result of a function whose
    gradient reads its input is kept as well if other operations' gradients read it, and values
    that another IPU reads are not sent there twice.

    Args:
      backward_eqns: all equations of the backward pass.
    """
    read_by_others: set[Var] = set()
    shards_of_readers: dict[Var, set[int | None]] = {}
    for eqn in backward_eqns:
        operands = unique_variables(eqn.invars)
        if find_composed_function(eqn) is None:
            read_by_others.update(operands)
        for var in operands:
            shards_of_readers.setdefault(var, set()).add(_shard_of(eqn))

    def may_run_twice(eqn: JaxprEqn) -> bool:
        if not is_cheap_to_recompute(eqn):
            return False
        shard = {_shard_of(eqn)}
        if any(shards_of_readers.get(var, shard) != shard for var in eqn.outvars):
            return False
        function = find_composed_function(eqn)
        if function in _WITH_GRADIENT_OF_INPUT:
            return read_by_others.isdisjoint(eqn.outvars)
        return function is not None or eqn.primitive.name == "convert_element_type"

    return may_run_twice


def find_composed_function(eqn: JaxprEqn) -> str | None:
    """Returns the composed function that an equation is inside of, as `logsoftmax`, or None.

    Functions are known by their names, whoever wrote them: `jax.nn.gelu`, `GELU.__call__`.
    """
    marked = marks.read_marks(name_stack(eqn)).composed
    if marked is not None:
        return marked
    return _innermost_composed_function(names_of_calling_functions(eqn))


@functools.lru_cache(maxsize=1 << 14)
def _innermost_composed_function(names: tuple[str, ...]) -> str | None:
    parts = [_plain(part) for name in reversed(names) for part in name.split(".")]
    return next((part for part in parts if part in _COMPOSED), None)


def _shard_of(eqn: JaxprEqn) -> int | None:
    return marks.read_marks(name_stack(eqn)).shard


def mark_composed_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Marks calls of jitted composed functions, so that their equations are known when opened."""

    def mark(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        scope = marks.write_mark(marks.COMPOSED, _plain(eqn.params["name"]))
        rewriter.keep_equation(add_innermost_scope(eqn, scope))

    return rewrite_equations(closed, EquationFinder(_calls_composed_function), mark)


def _calls_composed_function(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name in JITTED and _plain(str(eqn.params.get("name"))) in _COMPOSED


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
