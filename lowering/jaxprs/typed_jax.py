"""JAX's functions that JAX annotates in part only, with the types that hold in this project.

They are the functions themselves: a checker reads the signatures here, and Python JAX's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, ParamSpec, TypeVar

    import numpy as np
    from jax import Array
    from jax.typing import ArrayLike, DTypeLike

    P = ParamSpec("P")
    T = TypeVar("T")
    Groups = Sequence[Sequence[int]]
    Axes = tuple[Sequence[int], Sequence[int]]
    Edges = Sequence[tuple[int, int]]

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
    def sequential_vmap(f: Callable[P, T]) -> Callable[P, T]: ...
    def vjp(fun: Callable[..., T], *primals: Any) -> tuple[T, Callable[..., tuple[Any, ...]]]: ...
    def jvp(
        fun: Callable[..., T], primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[T, T]: ...

    # Collectives, of one array each.
    def psum(x: Array, axis_name: str, *, axis_index_groups: Groups | None = None) -> Array: ...
    def pmax(x: Array, axis_name: str, *, axis_index_groups: Groups | None = None) -> Array: ...
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
    def dot_general(
        lhs: ArrayLike,
        rhs: ArrayLike,
        dimension_numbers: tuple[Axes, Axes],
        precision: Any = None,
        preferred_element_type: DTypeLike | None = None,
    ) -> Array: ...
    def reduce_sum(operand: Array, axes: Sequence[int]) -> Array: ...
    def finfo(dtype: DTypeLike) -> np.finfo[np.floating[Any]]: ...

    fancy_primitive_batchers: Mapping[object, Callable[..., Any]]

    # Pytrees.
    def keystr(keys: tuple[Any, ...]) -> str: ...
    def tree_leaves_with_path(tree: Any) -> list[tuple[tuple[Any, ...], Any]]: ...
    def tree_unflatten(treedef: object, leaves: Iterable[Any]) -> Any: ...
else:
    from jax import jvp, vjp
    from jax.custom_batching import sequential_vmap
    from jax.interpreters.batching import fancy_primitive_batchers
    from jax.lax import (
        all_gather,
        all_to_all,
        broadcast_in_dim,
        cond,
        dot_general,
        fori_loop,
        optimization_barrier,
        pmax,
        psum,
        psum_scatter,
        reduce_sum,
        switch,
    )
    from jax.numpy import arange, asarray, finfo, full_like, pad, zeros, zeros_like
    from jax.tree_util import keystr, tree_leaves_with_path, tree_unflatten
