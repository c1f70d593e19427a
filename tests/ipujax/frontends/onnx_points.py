"""Points at which ONNX's operators are differentiated, and the comparison with differences."""

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STEP = 1e-6
STEP_OF_SINGLE = 1e-2


@dc.dataclass(frozen=True)
class Case:
    """An operator at one point.

    Attributes:
      inputs: arrays; of floating point if there is a derivative by them. Others are constants;
        None is left out.
      attributes: the node's.
      opset: of its domain.
      outputs: how many results there are; integers among them are left out of the derivative.
      constants: positions of inputs of floating point that there is no derivative by.
      single: computes in single precision, which is all that ONNX lets the operator do.
      domain: of the operator.
    """

    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = dc.field(default_factory=dict)
    opset: int = onnx.defs.onnx_opset_version()
    outputs: int = 1
    constants: tuple[int, ...] = ()
    single: bool = False
    domain: str = ""

    @property
    def points(self) -> tuple[Any, ...]:
        """The inputs that there is a derivative by."""
        return tuple(x for i, x in enumerate(self.inputs) if self.is_point(i))

    def is_point(self, position: int) -> bool:
        x = self.inputs[position]
        return x is not None and x.dtype == np.float64 and position not in self.constants


def at(
    *inputs: Any,
    opset: int = Case.opset,
    outputs: int = 1,
    constants: tuple[int, ...] = (),
    single: bool = False,
    **attributes: Any,
) -> Case:
    return Case(inputs, attributes, opset, outputs, constants, single)


def values(*shape: int, low: float = -2, high: float = 2) -> Any:
    """Different values with none near a whole number, where functions have kinks."""
    size = int(np.prod(shape))
    spread = low + (high - low) * np.random.default_rng(size).permutation(size) / size
    return (np.floor(spread * 4) / 4 + 0.11 + 0.02 * np.arange(size) / size).reshape(shape)


def positive(*shape: int) -> Any:
    return values(*shape, low=0.25, high=2)


def ints(*numbers: int) -> Any:
    return np.asarray(numbers, np.int64)


def model_of(name: str, case: Case) -> onnx.ModelProto:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    results = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(name, names, results, domain=case.domain, **case.attributes)
    kind = TensorProto.FLOAT if case.single else TensorProto.DOUBLE
    inputs: list[Any] = []
    constants: list[Any] = []
    for i, x in enumerate(case.inputs):
        if case.is_point(i):
            inputs.append(helper.make_tensor_value_info(names[i], kind, x.shape))
        elif x is not None:
            constants.append(numpy_helper.from_array(x, names[i]))
    outputs = [helper.make_tensor_value_info(n, kind, ["not read"]) for n in results]
    graph = helper.make_graph([node], name, inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(case.domain, case.opset)])


def check_derivative(model: Any, case: Case) -> None:
    """That of a weighted sum of all outputs, along one direction."""
    inputs = case.points
    step, rtol, atol = (STEP_OF_SINGLE, 2e-3, 2e-4) if case.single else (STEP, 1e-6, 1e-8)

    def weighted(*arrays: Any) -> Any:
        outputs = model.apply(model.variables, *arrays)[0]
        real = [y for y in outputs if jnp.issubdtype(y.dtype, jnp.floating)]
        return sum(jnp.vdot(y, jnp.cos(jnp.arange(y.size) + 1.0)) for y in real)

    directions = [np.sin(np.arange(x.size) + 1.0).reshape(x.shape) for x in inputs]
    both = jax.jit(jax.value_and_grad(weighted, range(len(inputs))))
    grads = both(*inputs)[1]
    given = sum(np.vdot(g, d) for g, d in zip(grads, directions, strict=True))
    after, before = (
        both(*(x + sign * step * d for x, d in zip(inputs, directions, strict=True)))[0]
        for sign in (1, -1)
    )
    assert given != 0
    np.testing.assert_allclose(given, (after - before) / (2 * step), rtol=rtol, atol=atol)
