"""What some equations cost on one micro-batch, and by the machine model."""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.ground import IPUError, PipelineError, shorten_call_path, show_progress
from ipujax.pipelines.pipeline_stages import Aval
from lowering import jaxpr, machine, structure_key

TARGET = machine.IPU2
"""The chip whose machine model tells costs."""


@dc.dataclass(frozen=True)
class PieceCosts:
    """The cost of a group of equations on one micro-batch.

    Attributes:
      forward: seconds of the forward pass.
      backward: seconds of the gradients of its inputs.
      weight: seconds of the gradients of its parameters.
      activation_bytes: bytes that wait for the backward pass, beside the parameters.
      workspace_bytes: bytes that are needed only meanwhile; 0 where nobody measured them.
      kept: which of its arguments, and of its results after them, are among what waits, with bytes.
    """

    forward: float
    backward: float
    weight: float
    activation_bytes: float
    workspace_bytes: float
    kept: tuple[tuple[int, float], ...] = ()


@dc.dataclass(frozen=True, eq=False)
class Piece:
    """Some equations as a function.

    Attributes:
      closed: the function.
      is_parameter: for each argument, whether parameters alone decide it.
      where: the user's lines.
    """

    closed: jaxpr.ClosedJaxpr
    is_parameter: tuple[bool, ...]
    where: str = ""

    @functools.cached_property
    def key(self) -> Any:
        """The structure of the piece, which pieces that cost the same share."""
        return structure_key(self.closed), self.is_parameter

    def list_functions(
        self, differentiates: bool = True
    ) -> list[tuple[Callable[..., Any], list[Aval]]]:
        """Lists forward; with gradients of inputs; with all gradients; and their arguments.

        Without a backward pass, the first alone.
        """
        avals = [_shape_of(aval) for aval in self.closed.in_avals]
        if not differentiates:
            return [(self._run, avals)]
        cotangents = [aval for aval in map(_shape_of, self.closed.out_avals) if _is_smooth(aval)]
        smooth = [i for i, aval in enumerate(avals) if _is_smooth(aval)]
        inputs = [i for i in smooth if not self.is_parameter[i]]

        def pull_back(differentiated: Sequence[int], *flat: Any) -> Any:
            results, pullback = self._differentiate(flat[: len(avals)], differentiated)
            return results, pullback(list(flat[len(avals) :]))

        return [
            (self._run, avals),
            (functools.partial(pull_back, inputs), [*avals, *cotangents]),
            (functools.partial(pull_back, smooth), [*avals, *cotangents]),
        ]

    def _run(self, *flat: Any) -> list[Any]:
        return jaxpr.run_equations(self.closed.jaxpr, self.closed.consts, flat)

    def _differentiate(self, flat: Sequence[Any], differentiated: Sequence[int]) -> tuple[Any, Any]:
        """Returns the smooth results, and the function that pulls their cotangents back."""

        def run(*chosen: Any) -> list[Any]:
            values = list(flat)
            for number, value in zip(differentiated, chosen, strict=True):
                values[number] = value
            return list(filter(_is_smooth, self._run(*values)))

        return jax.vjp(run, *(flat[number] for number in differentiated))

    def _measure_kept_values(self) -> tuple[float, tuple[tuple[int, float], ...]]:
        """Measures what is kept for the backward pass, without the parameters.

        Returns:
          Its bytes, and the arguments and results among it, as `PieceCosts.kept`.
        """
        measured: list[tuple[float, tuple[tuple[int, float], ...]]] = []

        def run(*flat: Any) -> None:
            smooth = [i for i, x in enumerate(flat) if _is_smooth(x)]
            results, pullback = self._differentiate(flat, smooth)
            parameters = {id(x) for x in itertools.compress(flat, self.is_parameter)}
            kept_values = {id(x): x for x in jax.tree.leaves(pullback) if id(x) not in parameters}
            sizes = {number: float(x.size * x.dtype.itemsize) for number, x in kept_values.items()}
            outside = dict(enumerate(flat)) | dict(
                zip(self._smooth_results(), results, strict=True)
            )
            numbers = {id(x): number for number, x in reversed(outside.items()) if id(x) in sizes}
            kept_outside = tuple((number, sizes[key]) for key, number in numbers.items())
            measured.append((sum(sizes.values()), kept_outside))

        jax.eval_shape(run, *map(_shape_of, self.closed.in_avals))
        return measured[0]

    def _smooth_results(self) -> list[int]:
        """Returns the numbers of the results that have derivatives, after those of arguments."""
        count = len(self.closed.in_avals)
        results = map(_shape_of, self.closed.out_avals)
        return [count + number for number, aval in enumerate(results) if _is_smooth(aval)]

    def build_costs(self, seconds: Sequence[float], space: float) -> PieceCosts:
        """Returns the costs of what takes these seconds.

        Args:
          seconds: those of each function that `list_functions` lists.
          space: bytes that are needed only meanwhile.
        """
        if len(seconds) == 1:
            return PieceCosts(seconds[0], 0.0, 0.0, 0.0, space)
        forward, with_inputs, with_all = seconds
        with_inputs = max(with_inputs, forward)
        with_all = max(with_all, with_inputs)
        waiting, kept = self._measure_kept_values()
        return PieceCosts(
            forward, with_inputs - forward, with_all - with_inputs, waiting, space, kept
        )


def model_pieces(pieces: Sequence[Piece], differentiates: bool) -> list[PieceCosts]:
    """Returns the costs of each piece by the machine model; nothing runs.

    Raises:
      PipelineError: (a `ValueError`) equations that have no gradients, with their lines.
    """
    take = functools.partial(_model_costs, differentiates=differentiates)
    costs: list[PieceCosts] = []
    with show_progress("costs", len(pieces)) as progress:
        for piece in pieces:
            progress.show_step(shorten_call_path(piece.where.split(" to ")[:1]))
            costs.append(name_lines_in_errors(piece, take))
    return costs


def name_lines_in_errors(piece: Piece, take: Callable[[Piece], Any]) -> Any:
    """Calls a function with a piece; what JAX cannot differentiate is an error with its lines."""
    try:
        return take(piece)
    except IPUError:
        raise
    except (TypeError, ValueError, NotImplementedError) as error:
        raise PipelineError(
            f"what a segment computes cannot be costed with its gradients: {error}",
            where=piece.where,
            fix="write it so that jax.grad can differentiate it, or give `costs` of your own",
        ) from error


def _model_costs(piece: Piece, differentiates: bool) -> PieceCosts:
    seconds = [
        machine.estimate_function_cycles(jaxpr.trace_flat(function, avals), TARGET)
        / TARGET.clock_hz
        for function, avals in piece.list_functions(differentiates)
    ]
    return piece.build_costs(seconds, 0.0)


def _shape_of(aval: Any) -> Aval:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _is_smooth(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)
