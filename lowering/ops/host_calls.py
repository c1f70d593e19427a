"""How XLA calls the host from within a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowering.jaxpr import Effect, mlir


def ordered_host_call(effect: Effect, call: Callable[..., Sequence[Any]]) -> Any:
    """A lowering rule: XLA calls the host, in order, and exactly as often as it is written.

    Args:
      effect: the kind of calls that keep their order among each other.
      call: takes NumPy arrays, and the equation's parameters by name; returns arrays.
    """

    def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
        def host(*arrays: Any) -> tuple[Any, ...]:
            return tuple(call(*arrays, **params))

        results, token, _ = mlir.emit_python_callback(
            ctx,
            host,
            ctx.tokens_in.get(effect),
            list(operands),
            ctx.avals_in,
            ctx.avals_out,
            has_side_effect=True,
            returns_token=True,
        )
        ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({effect: token})))
        return results

    return rule
