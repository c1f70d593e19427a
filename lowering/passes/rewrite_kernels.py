"""What passes share that rewrite certain equations of kernels and leave all else as it is."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

from lowering import ir
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    rewrite_equations,
)


def rewrite_kernels(
    program: ir.Program,
    finder: EquationFinder,
    rewrite: Callable[[ClosedJaxpr], ClosedJaxpr],
) -> ir.Program:
    """Returns a program whose kernels are rewritten, if the finder finds an equation in them."""

    def rewrite_node(node: ir.Node) -> ir.Node:
        if not isinstance(node, ir.Execute) or not finder(node.kernel.jaxpr.jaxpr):
            return node
        return dc.replace(node, kernel=dc.replace(node.kernel, jaxpr=rewrite(node.kernel.jaxpr)))

    return dc.replace(program, body=ir.rewrite_nodes(program.body, rewrite_node))


def rewrite_equations_of_kernels(
    program: ir.Program,
    finder: EquationFinder,
    change: Callable[[EquationRewriter, JaxprEqn], None],
) -> ir.Program:
    """Returns a program in whose kernels `change` was called for each equation that is found."""
    return rewrite_kernels(
        program, finder, lambda closed: rewrite_equations(closed, finder, change)
    )
