"""The sources of a step's inputs and the destinations of its anchors' values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import jax
import numpy as np

from ipujax.popart.popart_checks import check

Array = np.ndarray


@check.guard
class PyStepIO:
    """A set of arrays with the inputs and outputs of a whole step.

    Args:
      inputs: by tensor, `[batches per step, accumulation, replicas, *shape]`; dimensions of 1 may
        be left out. Their dtypes are the tensors'; integers of 64 bits may be given for those of
        32.
      outputs: the arrays of anchors, as `initAnchorArrays` makes them; a step fills them.

    Raises:
      PopARTError: (a `ValueError`) arrays that are not C-contiguous.
    """

    def __init__(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]):
        check.require_instance(inputs, Mapping, "the inputs")
        check.require_instance(outputs, Mapping, "the outputs")
        self._inputs = {
            name: _check_contiguous(value, name, "input") for name, value in inputs.items()
        }
        self._outputs = {
            name: _check_contiguous(value, name, "output") for name, value in outputs.items()
        }
        self._is_checked = True

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Sets whether arrays are checked for unneeded names, and for their sizes.

        Without the checks, data of fewer micro-batches than a step takes are repeated.
        """
        self._is_checked = check.require_flag(enable, "enable")

    def check_array_names(self, inputs: Collection[str], anchors: Collection[str]) -> None:
        """Checks that a session uses all arrays.

        Args:
          inputs: the names of the model's inputs.
          anchors: the names of the data flow's anchors.

        Raises:
          PopARTError: (a `ValueError`) there is an array of another name.
        """
        for name in self._inputs if self._is_checked else ():
            if name not in inputs:
                raise check.value_error(
                    f"The tensor '{name}' has been provided as one of the inputs to the stepIO, "
                    "but it is not registered as one of the inputs to the model",
                    f"the inputs are {', '.join(inputs) or 'none'}",
                )
        for name in self._outputs if self._is_checked else ():
            if name not in anchors:
                raise check.value_error(
                    f"there is an array for tensor {name!r}, which is no anchor",
                    "name it in the DataFlow, and take the arrays of session.initAnchorArrays()",
                )

    def read_input(self, name: str, lead: tuple[int, ...], aval: jax.ShapeDtypeStruct) -> Array:
        """Returns the values of an input, `[*lead, *shape]`.

        Args:
          name: the name of the tensor.
          lead: batches per step, accumulation, replicas.
          aval: shape and dtype of a micro-batch.

        Raises:
          PopARTError: (a `ValueError`) it is missing, or has another dtype or number of elements.
        """
        if name not in self._inputs:
            raise check.value_error(
                f"No tensor {name} provided in PyStepIO's inputs: there are no data for input "
                f"{name!r}",
                f"give them: PyStepIO({{{name!r}: ...}})",
            )
        value = _narrow_to_dtype(self._inputs[name], name, aval)
        shape = (*lead, *aval.shape)
        if not self._is_checked and value.size and value.size % math.prod(aval.shape) == 0:
            return np.resize(value, shape)
        if value.size != np.prod(shape, dtype=int):
            raise check.value_error(
                f"Unexpected number of input elements for Tensor {name}. Expected "
                f"{np.prod(shape, dtype=int)}, but received {value.size}: the data of input "
                f"{name!r} have shape {value.shape}, and a step takes {shape}, which is batches, "
                "accumulation, replicas and the tensor's own",
                "give data of all micro-batches of a step",
            )
        return value.reshape(shape)

    def write_anchor(self, name: str, value: Array) -> None:
        """Writes an anchor's values into its array, if there is one.

        Raises:
          PopARTError: (a `ValueError`) an array of another size.
        """
        if (output_array := self._outputs.get(name)) is None:
            return
        if output_array.size != value.size:
            raise check.value_error(
                f"the array of anchor {name!r} has shape {output_array.shape}, and the step "
                f"returns {value.shape}",
                "take the arrays that session.initAnchorArrays() makes",
            )
        output_array[...] = value.reshape(output_array.shape)


@check.guard
class PyStepIOCallback:
    """A set of callbacks that provide each micro-batch and receive each result.

    Args:
      input_callback: `(tensor, is_prefetch)` returns the next micro-batch of an input; None where
        there is none to prefetch.
      input_complete_callback: `(tensor)` is called when that micro-batch has been read.
      output_callback: `(tensor)` returns an array for the next value of an anchor.
      output_complete_callback: `(tensor)` is called when that array has been filled.
    """

    def __init__(
        self,
        input_callback: Callable[[str, bool], Array],
        input_complete_callback: Callable[[str], None],
        output_callback: Callable[[str], Array],
        output_complete_callback: Callable[[str], None],
    ):
        self._input = check.require_function(input_callback, "input_callback")
        self._taken = check.require_function(input_complete_callback, "input_complete_callback")
        self._output = check.require_function(output_callback, "output_callback")
        self._there = check.require_function(output_complete_callback, "output_complete_callback")

    def check_array_names(self, inputs: Collection[str], anchors: Collection[str]) -> None:
        """Checks nothing: the callbacks are only asked for the model's names."""

    def read_input(self, name: str, lead: tuple[int, ...], aval: jax.ShapeDtypeStruct) -> Array:
        """Returns the values of an input from the callback, `[*lead, *shape]`."""
        rows: list[Array] = []
        for _ in range(int(np.prod(lead, dtype=int))):
            row = _narrow_to_dtype(
                _check_contiguous(self._input(name, False), name, "input"), name, aval
            )
            if row.size != np.prod(aval.shape, dtype=int):
                raise check.value_error(
                    f"the input callback gave {name!r} an array of shape {row.shape} in the place "
                    f"of {aval.shape}",
                    "give one micro-batch of one replica",
                )
            rows.append(row.reshape(aval.shape))
            self._taken(name)
        return np.stack(rows).reshape(*lead, *aval.shape)

    def write_anchor(self, name: str, value: Array) -> None:
        """Writes an anchor's values into the callback's arrays, one after the other."""
        sizes: int | None = None
        remaining = value.reshape(-1)
        while remaining.size or sizes is None:
            output_array = _check_contiguous(self._output(name), name, "output")
            sizes = output_array.size
            if not sizes or sizes > remaining.size:
                raise check.value_error(
                    f"the output callback gave {name!r} an array of {sizes} elements, and "
                    f"{remaining.size} are left",
                    "give an array for one micro-batch",
                )
            output_array[...] = remaining[:sizes].reshape(output_array.shape)
            remaining = remaining[sizes:]
            self._there(name)


@check.guard
class PyWeightsIO:
    """A set of arrays of weights, by name, to read into or write from."""

    def __init__(self, weights: Mapping[str, Array]):
        self.weights = dict(check.require_instance(weights, Mapping, "the weights"))


def _check_contiguous(value: object, name: str, kind: str) -> Array:
    """Checks that an array is C-contiguous, and returns it."""
    array = np.asarray(value)
    if not array.flags.c_contiguous:
        raise check.value_error(
            f"PyStepIO is unable to use the numpy {kind} array for tensor '{name}' as it is not "
            "c-contiguous",
            "give numpy.ascontiguousarray(...)",
        )
    return array


def _narrow_to_dtype(value: Array, name: str, aval: jax.ShapeDtypeStruct) -> Array:
    """Checks an array's dtype against a tensor's, and narrows integers of 64 bits."""
    dtype_name = {"int64": "int32", "uint64": "uint32"}.get(value.dtype.name, value.dtype.name)
    if dtype_name != aval.dtype.name:
        raise check.value_error(
            f"Type discrepancy for tensor {name}. User provided : {value.dtype.name} and expected "
            f": {aval.dtype.name}",
            f"give array.astype(numpy.{aval.dtype.name})",
        )
    return value.astype(aval.dtype)
