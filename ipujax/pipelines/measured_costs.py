"""What pieces cost on one micro-batch, by a clock.

A piece that is timed alone takes the overhead of a call, and makes what XLA would not make where
the piece after it is compiled with it. What it adds to a stage is therefore solved for, from the
seconds of single pieces and of several in a row.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import ProgressLine, shorten_call_path, show_progress
from ipujax.pipelines.piece_costs import Piece, PieceCosts, name_lines_in_errors
from ipujax.pipelines.pipeline_stages import Aval

_TURNS = 5  # in which functions are timed; the shortest run of each counts
_RUNS, _MOST_RUNS = 2, 50  # of a function in a turn
_SECONDS = 0.03  # of these runs, where they are more than the least
_SECONDS_OF_TURNS = 30.0  # of all turns, after which no other one begins
_SECONDS_OF_WINDOWS = 20.0  # after which no other window is compiled
_BYTES_OF_WINDOWS = 2.0**30  # which several pieces may take, if none takes more alone
_LEAST = 0.05  # of the seconds of a piece alone, which are its own, and no overhead
_DOUBT = 1e-3  # of the overhead of calls, where windows do not tell it: then it is none


@dc.dataclass(frozen=True)
class Window:
    """Some pieces in a row, which are timed as one function.

    Attributes:
      parts: the numbers of the pieces; one that comes twice is there twice.
      build: builds the function.
    """

    parts: tuple[int, ...]
    build: Callable[[], Piece]


def list_windows(parts: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Lists ranges of segments to time, those first that tell most of the seconds of stages.

    Ranges of two, four, eight and so on segments, but not all: first those that lie side by side,
    so that each length has each segment once; then those between them. Of ranges that compute the
    same, there is one.

    Args:
      parts: for each segment, the number of what it computes; None where it cannot be in a range.
    """
    listed: set[tuple[int | None, ...]] = set()
    lengths = [2**power for power in range(1, len(parts).bit_length()) if 2**power < len(parts)]
    for lies_between in (False, True):
        for length in lengths:
            for first in range(lies_between * length // 2, len(parts) - length + 1, length):
                parts_inside = tuple(parts[first : first + length])
                if None not in parts_inside and parts_inside not in listed:
                    listed.add(parts_inside)
                    yield first, first + length


def fit_seconds(counts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Solves for the seconds that each piece adds to functions which compute several.

    A function takes the overhead of a call, which is the same for all, and what its pieces add. The
    solution has the least squares of relative errors among those without negative seconds, in
    which some of the first function of a piece that is timed alone is not overhead. Where each
    piece is timed alone and nothing else, there is no overhead.

    Args:
      counts: int [windows, pieces]; how often each window computes each piece.
      seconds: float [windows, functions]; each function of a window computes what the one before it
        does, and more.

    Returns:
      float [pieces, functions]: what each piece adds to the seconds of each function, beyond the
      function before it.
    """
    from scipy import optimize  # which JAX requires, and which takes long to import

    functions = seconds.shape[1]
    with_overhead = np.column_stack([counts, np.ones(len(counts))])
    rows = np.kron(with_overhead, np.tri(functions)) / seconds.reshape(-1, 1)
    least = np.zeros((rows.shape[1] // functions, functions))
    alone = counts.sum(axis=1) == 1
    least[counts[alone].argmax(axis=1), 0] = _LEAST * seconds[alone, 0]
    doubt = np.zeros((functions, rows.shape[1]))
    doubt[:, -functions:] = np.eye(functions) * _DOUBT / np.median(seconds)
    targets = np.concatenate([np.ones(seconds.size), np.zeros(functions)])
    rows = np.concatenate([rows, doubt])
    beyond = cast(Any, optimize).nnls(rows, targets - rows @ least.ravel())[0]
    return (least + beyond.reshape(-1, functions))[:-1]


def measure_pieces(
    pieces: Sequence[Piece], windows: Sequence[Window], differentiates: bool
) -> list[PieceCosts]:
    """Returns the costs of each piece, as they are in a stage with others.

    JAX's first device runs them and the windows in turns, so that what disturbs it for a while
    disturbs few runs of each; XLA tells the bytes that they work in. Where the windows take too
    long, the last ones are left out; and those that take much memory, for a model of many IPUs need
    not fit on a device.

    Raises:
      PipelineError: (a `ValueError`) equations that have no gradients, with their lines.
    """
    compile_piece = functools.partial(_compile_functions, differentiates=differentiates)
    with show_progress("costs", len(pieces) + len(windows) + _TURNS) as progress:
        timed: list[list[_CompiledFunction]] = []
        for piece in pieces:
            progress.show_step(shorten_call_path(piece.where.split(" to ")[:1]))
            timed.append(name_lines_in_errors(piece, compile_piece))
        largest = max(function.size for functions in timed for function in functions)
        most_bytes = max(_BYTES_OF_WINDOWS, largest)
        counts = [*np.eye(len(pieces), dtype=int)]
        end = time.monotonic() + _SECONDS_OF_WINDOWS
        for window in windows:
            if time.monotonic() > end:
                break
            progress.show_step(f"{len(window.parts)} segments in a row")
            functions = name_lines_in_errors(window.build(), compile_piece)
            if max(function.size for function in functions) <= most_bytes:
                timed.append(functions)
                counts.append(np.bincount(window.parts, minlength=len(pieces)))
        _time_in_turns([function for functions in timed for function in functions], progress)
    seconds_of_rows = np.array([[function.seconds for function in row] for row in timed])
    added = fit_seconds(np.array(counts), seconds_of_rows)
    return [
        piece.build_costs(np.cumsum(seconds).tolist(), functions[-1].space)
        for piece, seconds, functions in zip(pieces, added, timed[: len(pieces)], strict=True)
    ]


def _time_in_turns(functions: Sequence[_CompiledFunction], progress: ProgressLine) -> None:
    """Runs functions in turns, at least in one, until the time for it is over."""
    seconds = min(_SECONDS, _SECONDS_OF_TURNS / _TURNS / max(len(functions), 1))
    end = time.monotonic() + _SECONDS_OF_TURNS
    for turn in range(_TURNS):
        if turn and time.monotonic() > end:
            return
        progress.show_step(f"turn {turn + 1} of the clock")
        for function in functions:
            function.time_runs(seconds)


def _compile_functions(piece: Piece, differentiates: bool) -> list[_CompiledFunction]:
    return [_CompiledFunction(*pair) for pair in piece.list_functions(differentiates)]


class _CompiledFunction:
    """A function that is timed on JAX's first device.

    Args:
      function: the function.
      avals: its arguments.

    Attributes:
      seconds: those of the shortest run; inf before the first.
      space: the bytes that it works in, as XLA tells.
      size: the same, with the bytes of its arguments and results.
    """

    def __init__(self, function: Callable[..., Any], avals: Sequence[Aval]):
        self._compiled = jax.jit(function).lower(*avals).compile()
        self._avals = avals
        self.seconds = math.inf
        analysis = self._compiled.memory_analysis()
        argument, output, self.space = (
            float(getattr(analysis, f"{kind}_size_in_bytes", 0))
            for kind in ("argument", "output", "temp")
        )
        self.size = argument + output + self.space

    def time_runs(self, most: float) -> None:
        """Runs it some times, on arguments that are there only meanwhile.

        Args:
          most: the seconds after which no run begins but the least ones.
        """
        arguments = [jnp.ones(aval.shape, aval.dtype) for aval in self._avals]
        jax.block_until_ready(self._compiled(*arguments))
        runs, total = 0, 0.0
        while runs < _RUNS or (total < most and runs < _MOST_RUNS):
            started = time.perf_counter()
            jax.block_until_ready(self._compiled(*arguments))
            seconds = time.perf_counter() - started
            self.seconds = min(self.seconds, seconds)
            runs, total = runs + 1, total + seconds
