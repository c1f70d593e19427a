"""Where a step takes its data from, and where it puts what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import numpy as np

from ipujax.popart.checks import check

Array = np.ndarray[Any, Any]


@check.guard
class PyStepIO:
    """Arrays of all of a step.

    Args:
      inputs: by tensor, `[batches per step, accumulation, replicas, *shape]`; dimensions of 1 may
        be left out. Their dtypes are the tensors'; integers of 64 bits may be given for those of
        32.
      outputs: the arrays of anchors, as `initAnchorArrays` makes them; a step fills them.

    Raises:
      PopARTError: (a `ValueError`) arrays that are not in C's order.
    """

    def __init__(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]):
        check.instance(inputs, Mapping, "the inputs")
        check.instance(outputs, Mapping, "the outputs")
        self._inputs = {name: _in_order(value, name, "input") for name, value in inputs.items()}
        self._outputs = {name: _in_order(value, name, "output") for name, value in outputs.items()}
        self._is_checked = True

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Says whether arrays are checked for names that are not needed, and for their sizes.

        Without, data of fewer micro-batches than a step takes begin anew where they end.
        """
        self._is_checked = check.flag(enable, "enable")

    def check_names(self, inputs: Collection[str], anchors: Collection[str]) -> None:
        """Refuses arrays that a session has no use for.

        Args:
          inputs: the model's.
          anchors: the data flow's.

        Raises:
          PopARTError: (a `ValueError`) it names the first of them.
        """
        for name in self._inputs if self._is_checked else ():
            if name not in inputs:
                raise check.refuse(
                    f"The tensor '{name}' has been provided as one of the inputs to the stepIO, "
                    "but it is not registered as one of the inputs to the model",
                    f"the inputs are {', '.join(inputs) or 'none'}",
                )
        for name in self._outputs if self._is_checked else ():
            if name not in anchors:
                raise check.refuse(
                    f"there is an array for tensor {name!r}, which is no anchor",
                    "name it in the DataFlow, and take the arrays of session.initAnchorArrays()",
                )

    def read(self, name: str, lead: tuple[int, ...], aval: jax.ShapeDtypeStruct) -> Array:
        """The values of an input, `[*lead, *shape]`.

        Args:
          name: the tensor.
          lead: batches per step, accumulation, replicas.
          aval: shape and dtype of a micro-batch.

        Raises:
          PopARTError: (a `ValueError`) it is missing, or has another dtype or number of elements.
        """
        if name not in self._inputs:
            raise check.refuse(
                f"No tensor {name} provided in PyStepIO's inputs: there are no data for input "
                f"{name!r}",
                f"give them: PyStepIO({{{name!r}: ...}})",
            )
        value = _of_dtype(self._inputs[name], name, aval)
        shape = (*lead, *aval.shape)
        if not self._is_checked and value.size and value.size % math.prod(aval.shape) == 0:
            return np.resize(value, shape)
        if value.size != np.prod(shape, dtype=int):
            raise check.refuse(
                f"Unexpected number of input elements for Tensor {name}. Expected "
                f"{np.prod(shape, dtype=int)}, but received {value.size}: the data of input "
                f"{name!r} have shape {value.shape}, and a step takes {shape}, which is batches, "
                "accumulation, replicas and the tensor's own",
                "give data of all micro-batches of a step",
            )
        return value.reshape(shape)

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


@check.guard
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

    def check_names(self, inputs: Collection[str], anchors: Collection[str]) -> None:
        """Refuses nothing: the functions are asked for what there is."""

    def read(self, name: str, lead: tuple[int, ...], aval: jax.ShapeDtypeStruct) -> Array:
        """As `PyStepIO.read`."""
        rows: list[Array] = []
        for _ in range(int(np.prod(lead, dtype=int))):
            row = _of_dtype(_in_order(self._input(name, False), name, "input"), name, aval)
            if row.size != np.prod(aval.shape, dtype=int):
                raise check.refuse(
                    f"the input callback gave {name!r} an array of shape {row.shape} in the place "
                    f"of {aval.shape}",
                    "give one micro-batch of one replica",
                )
            rows.append(row.reshape(aval.shape))
            self._taken(name)
        return np.stack(rows).reshape(*lead, *aval.shape)

    def write(self, name: str, value: Array) -> None:
        """Hands on what an anchor returns, one after the other."""
        sizes: int | None = None
        rest = value.reshape(-1)
        while rest.size or sizes is None:
            into = _in_order(self._output(name), name, "output")
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


@check.guard
class PyWeightsIO:
    """Arrays of weights, by tensor, that are read into or written from."""

    def __init__(self, weights: Mapping[str, Array]):
        self.weights = dict(check.instance(weights, Mapping, "the weights"))


def _in_order(value: Any, name: str, kind: str) -> Array:
    """An array that can be copied as it lies in memory, as an IPU's streams copied it."""
    array = np.asarray(value)
    if not array.flags.c_contiguous:
        raise check.refuse(
            f"PyStepIO is unable to use the numpy {kind} array for tensor '{name}' as it is not "
            "c-contiguous",
            "give numpy.ascontiguousarray(...)",
        )
    return array


def _of_dtype(value: Array, name: str, aval: jax.ShapeDtypeStruct) -> Array:
    """An array of a tensor's dtype; integers of 64 bits lose half of them."""
    given = {"int64": "int32", "uint64": "uint32"}.get(value.dtype.name, value.dtype.name)
    if given != aval.dtype.name:
        raise check.refuse(
            f"Type discrepancy for tensor {name}. User provided : {value.dtype.name} and expected "
            f": {aval.dtype.name}",
            f"give array.astype(numpy.{aval.dtype.name})",
        )
    return value.astype(aval.dtype)
