"""The options of the compiler, which reads no other settings."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what shows reports needs no JAX
    from jax.sharding import AbstractMesh


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of one compilation.

    Attributes:
      num_ipus: IPUs of the device.
      replicas: how many run on the device; None for as many as it has room for.
      instances: processes that run the program together, each with a device like this.
      name: the program's name in its text.
      catch_invalid: report an operation that makes a NaN from none.
      catch_division: report a division by zero.
      catch_overflow: report an operation that makes an infinity from finite numbers.
      number_formats: compute float16 as the three options below and the scopes of the program ask.
        The machine does so by itself, hence its model takes programs without.
      float16_limits: float16 has no infinities of its own making: overflows are its largest number,
        and divisions by zero are NaN.
      nan_on_overflow: with them, overflows are NaN.
      stochastic_rounding: float16 results are rounded at random, where no scope says otherwise.
      partials: the type of partial results of float16 by primitive, "dot_general" and
        "conv_general_dilated", where no scope says otherwise.
      allow_recompute: let backward passes compute activations again instead of keeping them: stages
        of pipelines all, others what is cheap.
      stable_statistics: normalisations subtract the mean before they compute the variance.
      batch_norm_group: how many replicas share the statistics of batch normalisations.
      io_tiles: I/O runs on tiles of its own, which Grouped pipelines make use of.
      has_remote: whether there is streaming memory; without, nothing is kept there by default.
      minimum_remote_bytes: smaller values stay on their IPU, whatever storage was asked for.
      merged_copy_bytes: up to how many bytes copies between two IPUs go together.
      merged_host_bytes: up to how many bytes copies around calls of the host go together.
      simplify_gathers: turn lookups with known indices into slices.
      combine_products: merge the products that share an operand into one.
      combine_lookups: merge the lookups of one table into one, and its updates.
      mesh: the axes of the mesh of JAX devices that each IPU has; None if it has one device.
      count_cycles: the modelled cycles of a jaxpr, for readings of the clock; None if it stands
        still.
      on_pass: called with each pass's name and the text after it, for dumps and notebooks.
    """

    num_ipus: int = 1
    replicas: int | None = None
    instances: int = 1
    name: str = "main"
    catch_invalid: bool = False
    catch_division: bool = False
    catch_overflow: bool = False
    number_formats: bool = False
    float16_limits: bool = False
    nan_on_overflow: bool = False
    stochastic_rounding: bool = False
    partials: tuple[tuple[str, str], ...] = ()
    allow_recompute: bool = False
    stable_statistics: bool = False
    batch_norm_group: int = 1
    io_tiles: bool = False
    has_remote: bool = True
    minimum_remote_bytes: int = 0
    merged_copy_bytes: int = 0
    merged_host_bytes: int = 0
    simplify_gathers: bool = False
    combine_products: bool = False
    combine_lookups: bool = False
    mesh: AbstractMesh | None = None
    count_cycles: Callable[..., int] | None = dc.field(default=None, compare=False)
    on_pass: Callable[[str, str], None] | None = None

    @property
    def fault_kinds_to_report(self) -> frozenset[str]:
        """The kinds of floating-point faults that are to be reported."""
        kinds = ("invalid", "division by zero", "overflow")
        flags = (self.catch_invalid, self.catch_division, self.catch_overflow)
        return frozenset(kind for kind, is_set in zip(kinds, flags, strict=True) if is_set)
