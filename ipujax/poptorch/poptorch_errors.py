"""The conversion of errors from the layers below into `poptorch.Error`."""

from __future__ import annotations

from types import TracebackType

from ipujax.ground import IPUError, PlanError, PopTorchError


class PopTorchPlanError(PopTorchError, PlanError):
    """A model that no plan can be made for: see `PlanError`."""


class convert_errors:
    """A context that raises errors of the layers below as PopTorch's own errors.

    A class, as `contextlib.suppress` is: every call enters it, and a generator would be slower.

    Raises:
      PopTorchError: (a `ValueError`) says the same; its `__cause__` is the error.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, PlanError) and not isinstance(error, PopTorchError):
            raise PopTorchPlanError(
                error.what,
                where=error.where,
                fix=error.fix,
                nearest=error.nearest,
                lacks=error.lacks,
            ) from error
        if isinstance(error, IPUError) and not isinstance(error, PopTorchError):
            raise PopTorchError(error.what, where=error.where, fix=error.fix) from error
