"""Where a step takes its data from, and where it puts what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ipujax.popart.checks import check

Array = np.ndarray[Any, Any]


class PyStepIO:
    """Arrays of all of a step.

    Args:
      inputs: by tensor, `[batches per step, accumulation, replicas, *shape]`; dimensions of 1 may
        be left out.
      outputs: the arrays of anchors, as `initAnchorArrays` makes them; a step fills them.
    """

    def __init__(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]):
        check.instance(inputs, Mapping, "the inputs")
        check.instance(outputs, Mapping, "the outputs")
        self._inputs = {name: np.asarray(value) for name, value in inputs.items()}
        self._outputs = dict(outputs)

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Changes nothing: shapes and dtypes are always checked."""
        check.flag(enable, "enable")

    def read(self, name: str, lead: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        """The values of an input, `[*lead, *shape]`.

        Args:
          name: the tensor.
          lead: batches per step, accumulation, replicas.
          shape: of a micro-batch.

        Raises:
          PopARTError: (a `ValueError`) it is missing, or has another number of elements.
        """
        if name not in self._inputs:
            raise check.refuse(
                f"there are no data for input {name!r}", f"give them: PyStepIO({{{name!r}: ...}})"
            )
        value = self._inputs[name]
        if value.size != np.prod([*lead, *shape], dtype=int):
            raise check.refuse(
                f"the data of input {name!r} have shape {value.shape}, and a step takes "
                f"{(*lead, *shape)}: batches, accumulation, replicas and the tensor's own",
                "give data of all micro-batches of a step",
            )
        return value.reshape(*lead, *shape)

    def write(self, name: str, value: Array) -> None:
        """Puts what an anchor returns into its array, if there is one.

        Raises:
          PopARTError: (a `ValueError`) an array of another size.
        """
        if (into := self._outputs.get(name)) is None:
            return
        if into.size != value.size:
            raise check.refuse(
                f"the array of anchor {name!r} has shape {into.shape}, and the step returns "
                f"{value.shape}",
                "take the arrays that session.initAnchorArrays() makes",
            )
        into[...] = value.reshape(into.shape)


class PyStepIOCallback:
    """Functions that are asked for each micro-batch, and told what each returns.

    Args:
      input_callback: `(tensor, is_prefetch)` gives the next micro-batch of an input; None where
        there is none to prefetch.
      input_complete_callback: `(tensor)` is told that it has been taken.
      output_callback: `(tensor)` gives an array for the next value of an anchor.
      output_complete_callback: `(tensor)` is told that it is there.
    """

    def __init__(
        self,
        input_callback: Callable[[str, bool], Array],
        input_complete_callback: Callable[[str], None],
        output_callback: Callable[[str], Array],
        output_complete_callback: Callable[[str], None],
    ):
        self._input = check.function(input_callback, "input_callback")
        self._taken = check.function(input_complete_callback, "input_complete_callback")
        self._output = check.function(output_callback, "output_callback")
        self._there = check.function(output_complete_callback, "output_complete_callback")

    def read(self, name: str, lead: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        """As `PyStepIO.read`."""
        rows: list[Array] = []
        for _ in range(int(np.prod(lead, dtype=int))):
            row = np.asarray(self._input(name, False))
            if row.size != np.prod(shape, dtype=int):
                raise check.refuse(
                    f"the input callback gave {name!r} an array of shape {row.shape} in the place "
                    f"of {shape}",
                    "give one micro-batch of one replica",
                )
            rows.append(row.reshape(shape))
            self._taken(name)
        return np.stack(rows).reshape(*lead, *shape)

    def write(self, name: str, value: Array) -> None:
        """Hands on what an anchor returns, one after the other."""
        sizes: int | None = None
        rest = value.reshape(-1)
        while rest.size or sizes is None:
            into = np.asarray(self._output(name))
            sizes = into.size
            if not sizes or sizes > rest.size:
                raise check.refuse(
                    f"the output callback gave {name!r} an array of {sizes} elements, and "
                    f"{rest.size} are left",
                    "give an array for one micro-batch",
                )
            into[...] = rest[:sizes].reshape(into.shape)
            rest = rest[sizes:]
            self._there(name)


class PyWeightsIO:
    """Arrays of weights, by tensor, that are read into or written from."""

    def __init__(self, weights: Mapping[str, Array]):
        self.weights = dict(check.instance(weights, Mapping, "the weights"))
