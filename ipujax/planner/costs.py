"""What a model costs, segment by segment: the numbers that a plan is made of."""

from __future__ import annotations

import dataclasses as dc
import math
import operator
from collections.abc import Sequence
from typing import Any

from ipujax.ground import PlanError
from ipujax.planner.plan_checks import check
from lowering import limit_dir_to

_NAMES = {"skips": "a skip", "shared_bytes": "shared bytes", "tied_bytes": "tied bytes"}
_ROUNDING = 1e-9  # the share by which sums of bytes may be off


@check.guard
@limit_dir_to()
@dc.dataclass(frozen=True)
class Costs:
    """The costs of a model's segments in their linear order, each for one micro-batch.

    A pipeline's stage is some consecutive segments.

    Attributes:
      forward: seconds of each segment's forward pass.
      backward: seconds of its backward pass; without the gradients of its weights, if `weight`
        has them.
      weight: seconds of the gradients of its weights alone; None if `backward` includes them.
        Schedules that split the backward pass are planned only where it is given.
      update: seconds of the update of its weights, once for all micro-batches; None for no time.
      parameter_bytes: bytes of its parameters, with all that stays beside them such as the
        optimizer's state; None for none.
      activation_bytes: bytes of activations that wait for its backward pass, of each micro-batch;
        None for none.
      workspace_bytes: bytes that it needs only while it runs; None for none.
      cut_bytes: for each segment but the last, the bytes that pass to the next one; None for none.
      skips: triples of two segments and bytes: what the first makes and the second, a later one,
        reads. They pass every boundary between the two, beside `cut_bytes`.
      bytes_per_second: how fast bytes pass a boundary between IPUs.
      latency: seconds that each such transfer takes besides.
      host_bytes_per_second: how fast activations that wait go from an IPU to host memory, and come
        back; 0 if there is none, and plans never offload.
      shared_bytes: triples of two segments and bytes: what both keep for their backward passes, and
        have in their `activation_bytes`. A stage with both keeps it once. Of what several segments
        keep, there is a triple for each two of them that follow one another.
      tied_bytes: triples of two segments and bytes: parameters of the first, with the sum of their
        gradients, that a later one reads too, and has not in its `parameter_bytes`. In another
        stage it keeps a copy. To another IPU these bytes pass once an update, the parameters there
        and their gradients back, which is a part of the updates of both IPUs. Of what several
        segments read, there is a triple for each two of them that follow one another.

    Raises:
      PlanError: (a `ValueError`) rows of unequal lengths, numbers that are negative or not finite,
        skips between segments that do not exist, or more shared bytes than a segment keeps.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    weight: Sequence[float] | None = None
    update: Sequence[float] | None = None
    parameter_bytes: Sequence[float] | None = None
    activation_bytes: Sequence[float] | None = None
    workspace_bytes: Sequence[float] | None = None
    cut_bytes: Sequence[float] | None = None
    skips: Sequence[tuple[int, int, float]] = ()
    bytes_per_second: float = math.inf
    latency: float = 0.0
    host_bytes_per_second: float = 0.0
    shared_bytes: Sequence[tuple[int, int, float]] = ()
    tied_bytes: Sequence[tuple[int, int, float]] = ()

    def __post_init__(self) -> None:
        forward = _read_row("forward", self.forward, None)
        count = len(forward)
        object.__setattr__(self, "forward", forward)
        object.__setattr__(self, "backward", _read_row("backward", self.backward, count))
        for name in ("update", "parameter_bytes", "activation_bytes", "workspace_bytes"):
            object.__setattr__(self, name, _read_optional_row(name, getattr(self, name), count))
        if self.weight is not None:
            object.__setattr__(self, "weight", _read_row("weight", self.weight, count))
        cuts = _read_optional_row("cut_bytes", self.cut_bytes, count - 1)
        object.__setattr__(self, "cut_bytes", cuts)
        for name in _NAMES:
            object.__setattr__(self, name, _read_triples(name, getattr(self, name), count))
        self._check_shared_bytes()
        speed = _read_number("bytes_per_second", self.bytes_per_second, may_be_infinite=True)
        if not speed:
            raise PlanError("bytes_per_second=0: nothing could pass", fix="give a positive number")
        object.__setattr__(self, "bytes_per_second", speed)
        object.__setattr__(self, "latency", _read_number("latency", self.latency))
        host = _read_number(
            "host_bytes_per_second", self.host_bytes_per_second, may_be_infinite=True
        )
        object.__setattr__(self, "host_bytes_per_second", host)

    def _check_shared_bytes(self) -> None:
        activation_bytes = tuple(self.activation_bytes or ())
        for last in {last for _, last, _ in self.shared_bytes}:
            shared = math.fsum(size for _, end, size in self.shared_bytes if end == last)
            if shared > activation_bytes[last] * (1 + _ROUNDING):
                raise PlanError(
                    f"segment {last} shares {shared:g} bytes with earlier ones, and keeps "
                    f"{activation_bytes[last]:g}",
                    fix="name what it shares once, with the last of the segments before that keep "
                    "it, and count it in its activation_bytes",
                )

    def __len__(self) -> int:
        """Returns the number of segments."""
        return len(self.forward)


def _read_number(name: str, value: Any, *, may_be_infinite: bool = False) -> float:
    try:
        number = float(value)
    except Exception:  # whatever an object raises that is no number
        number = math.nan
    if number >= 0 and (may_be_infinite or number < math.inf):
        return number
    raise PlanError(
        f"the costs have {_describe(value)} as {name}",
        fix="give a number that is finite and not negative",
    )


def _read_row(name: str, values: Any, count: int | None) -> tuple[float, ...]:
    """Returns a row of numbers; `count` of them, or at least one."""
    try:
        row: tuple[Any, ...] = tuple(values)
    except Exception:
        raise PlanError(
            f"the costs have {_describe(values)} as {name}",
            fix="give a sequence with one number per segment",
        ) from None
    if not row and count is None:
        raise PlanError("the costs have no segment", fix="give at least one number in `forward`")
    if count is not None and len(row) != count:
        raise PlanError(
            f"the costs have {len(row)} numbers in {name}, not {count}",
            fix="give one for each segment in `forward`; `cut_bytes` has one fewer",
        )
    return tuple(_read_number(f"{name}[{i}]", value) for i, value in enumerate(row))


def _read_optional_row(name: str, values: Any, count: int) -> tuple[float, ...]:
    return (0.0,) * count if values is None else _read_row(name, values, count)


def _read_triples(name: str, triples: Any, count: int) -> tuple[tuple[int, int, float], ...]:
    """Returns triples of two segments and bytes."""
    try:
        read = [(operator.index(a), operator.index(b), bytes_) for a, b, bytes_ in triples]
    except Exception:
        raise PlanError(
            f"the costs have {_describe(triples)} as {name}",
            fix="give triples of two segments and bytes: (2, 7, 4096)",
        ) from None
    for first, last, _ in read:
        if not 0 <= first < last < count:
            raise PlanError(
                f"the costs have {_NAMES[name]} from segment {first} to segment {last}",
                fix=f"name two of the segments 0 to {count - 1}, the earlier one first",
            )
    return tuple((a, b, _read_number(_NAMES[name], bytes_)) for a, b, bytes_ in read)


def _describe(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # such as a deleted array
        text = ""
    return text if 0 < len(text) < 80 and "\n" not in text else f"a {type(value).__name__}"
