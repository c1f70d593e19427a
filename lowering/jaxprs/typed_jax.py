"""JAX's functions that JAX annotates in part only, with the types that hold in this project.

They are the functions themselves: a checker reads the signatures here, and Python JAX's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
    from typing import Any, Literal, ParamSpec, TypeVar, overload

    import numpy as np
    from jax import Array
    from jax.typing import ArrayLike, DTypeLike

    from lowering.jaxprs.avals import Aval
    from lowering.jaxprs.jaxpr_types import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive

    P = ParamSpec("P")
    T = TypeVar("T")
    Groups = Sequence[Sequence[int]]
    Axes = tuple[Sequence[int], Sequence[int]]
    Edges = Sequence[tuple[int, int]]

    Device: type

    # Control flow, and what transforms functions.
    def switch(index: ArrayLike, branches: Sequence[Callable[..., T]], *operands: object) -> T: ...
    def cond(
        pred: ArrayLike,
        true_fun: Callable[..., T],
        false_fun: Callable[..., T],
        *operands: object,
    ) -> T: ...
    def fori_loop(
        lower: ArrayLike, upper: ArrayLike, body_fun: Callable[[Array, T], T], init_val: T
    ) -> T: ...
    def optimization_barrier(operand: T, /) -> T: ...
    def jit(fun: Callable[P, T], *, inline: bool = False) -> Callable[P, T]: ...
    def sequential_vmap(f: Callable[P, T]) -> Callable[P, T]: ...
    @overload
    def vjp(fun: Callable[..., T], *primals: Any) -> tuple[T, Callable[..., tuple[Any, ...]]]: ...
    @overload
    def vjp(
        fun: Callable[..., Any], *primals: Any, has_aux: Literal[True]
    ) -> tuple[Any, Callable[..., tuple[Any, ...]], Any]: ...
    def vjp(fun: Callable[..., Any], *primals: Any, **options: Any) -> Any: ...
    def jvp(
        fun: Callable[..., T], primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[T, T]: ...

    # Collectives, of one array each.
    def psum(x: Array, axis_name: str, *, axis_index_groups: Groups | None = None) -> Array: ...
    def pmax(x: Array, axis_name: str, *, axis_index_groups: Groups | None = None) -> Array: ...
    def ppermute(x: Array, axis_name: str, perm: Sequence[tuple[int, int]]) -> Array: ...
    def all_gather(
        x: Array,
        axis_name: str,
        *,
        axis_index_groups: Groups | None = None,
        axis: int = 0,
        tiled: bool = False,
    ) -> Array: ...
    def psum_scatter(
        x: Array,
        axis_name: str,
        *,
        scatter_dimension: int = 0,
        axis_index_groups: Groups | None = None,
        tiled: bool = False,
    ) -> Array: ...
    def all_to_all(
        x: Array,
        axis_name: str,
        split_axis: int,
        concat_axis: int,
        *,
        axis_index_groups: Groups | None = None,
        tiled: bool = False,
    ) -> Array: ...

    # Arrays.
    def arange(start: int, stop: int | None = None, *, dtype: DTypeLike | None = None) -> Array: ...
    def asarray(a: Any, dtype: DTypeLike | None = None) -> Array: ...
    def zeros(shape: int | Sequence[int], dtype: DTypeLike | None = None) -> Array: ...
    def zeros_like(a: ArrayLike, dtype: DTypeLike | None = None) -> Array: ...
    def full_like(a: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Array: ...
    def pad(array: Array, pad_width: Edges, *, constant_values: ArrayLike = 0) -> Array: ...
    def broadcast_in_dim(
        operand: ArrayLike, shape: Sequence[int], broadcast_dimensions: Sequence[int]
    ) -> Array: ...
    def with_sharding_constraint(x: Array, shardings: Any) -> Array: ...
    def dynamic_index_in_dim(
        operand: Array, index: ArrayLike, axis: int = 0, keepdims: bool = True
    ) -> Array: ...
    def dot_general(
        lhs: ArrayLike,
        rhs: ArrayLike,
        dimension_numbers: tuple[Axes, Axes],
        precision: Any = None,
        preferred_element_type: DTypeLike | None = None,
    ) -> Array: ...
    def reduce_sum(operand: Array, axes: Sequence[int]) -> Array: ...
    def finfo(dtype: DTypeLike) -> np.finfo[np.floating[Any]]: ...

    # Jaxprs.
    @overload
    def make_jaxpr(
        fun: Callable[..., Any], *, axis_env: Sequence[tuple[str, int]] | None = None
    ) -> Callable[..., ClosedJaxpr]: ...
    @overload
    def make_jaxpr(
        fun: Callable[..., Any], *, return_shape: Literal[True]
    ) -> Callable[..., tuple[ClosedJaxpr, Any]]: ...
    def make_jaxpr(fun: Callable[..., Any], **options: Any) -> Any: ...
    def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any) -> list[Any]: ...
    def dce_jaxpr(jaxpr: Jaxpr, used_outputs: Sequence[bool]) -> tuple[Jaxpr, list[bool]]: ...

    # The rules of primitives.
    dce_rules: Mapping[
        Primitive,
        Callable[[list[bool], JaxprEqn], tuple[list[bool], JaxprEqn | None]],
    ]
    conv_general_dilated_p: Primitive
    convert_element_type_p: Primitive
    fancy_primitive_batchers: Mapping[object, Callable[..., Any]]
    primitive_batchers: MutableMapping[Primitive, Callable[..., Any]]
    primitive_jvps: MutableMapping[Primitive, Callable[..., Any]]
    primitive_transposes: MutableMapping[Primitive, Callable[..., Any]]
    partial_eval_jaxpr_custom_rules: MutableMapping[Primitive, Callable[..., Any]]

    def bdim_at_front(x: Array, bdim: int | None, size: int) -> Array: ...
    def instantiate_zeros(tangent: Any) -> Array: ...
    def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Callable[..., Any]: ...
    def register_lowering(
        prim: Primitive,
        rule: Callable[..., Any],
        platform: str | None = None,
        inline: bool = True,
        cacheable: bool = True,
    ) -> None: ...
    def emit_python_callback(
        ctx: Any,
        callback: Callable[..., Any],
        token: Any,
        operands: Sequence[Any],
        operand_avals: Sequence[Aval],
        result_avals: Sequence[Aval],
        *,
        has_side_effect: bool,
        returns_token: bool = True,
    ) -> tuple[Sequence[Any], Any, Any]: ...

    # Keys.
    def wrap_key_data(key_bits_array: Array, *, impl: Any = None) -> Array: ...

    # Pytrees.
    def keystr(keys: tuple[Any, ...]) -> str: ...
    def tree_leaves_with_path(tree: Any) -> list[tuple[tuple[Any, ...], Any]]: ...
    def tree_unflatten(treedef: object, leaves: Iterable[Any]) -> Any: ...
else:
    from jax import Device, jit, jvp, make_jaxpr, vjp
    from jax.core import eval_jaxpr
    from jax.custom_batching import sequential_vmap
    from jax.interpreters.ad import instantiate_zeros, primitive_jvps, primitive_transposes
    from jax.interpreters.batching import (
        bdim_at_front,
        fancy_primitive_batchers,
        primitive_batchers,
    )
    from jax.interpreters.mlir import emit_python_callback, lower_fun, register_lowering
    from jax.interpreters.partial_eval import (
        dce_jaxpr,
        dce_rules,
        partial_eval_jaxpr_custom_rules,
    )
    from jax.lax import (
        all_gather,
        all_to_all,
        broadcast_in_dim,
        cond,
        conv_general_dilated_p,
        convert_element_type_p,
        dot_general,
        dynamic_index_in_dim,
        fori_loop,
        optimization_barrier,
        pmax,
        ppermute,
        psum,
        psum_scatter,
        reduce_sum,
        switch,
        with_sharding_constraint,
    )
    from jax.numpy import arange, asarray, finfo, full_like, pad, zeros, zeros_like
    from jax.random import wrap_key_data
    from jax.tree_util import keystr, tree_leaves_with_path, tree_unflatten
