"""All that can be wrong with a model is a `poptorch.Error`."""

from __future__ import annotations

from types import TracebackType

from ipujax.errors import IPUError, PopTorchError


class as_poptorch:
    """In the block, errors of what PopTorch stands on are raised as its own.

    A class, as `contextlib.suppress` is: calls pass through it, and a generator takes longer.

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
        if isinstance(error, IPUError) and not isinstance(error, PopTorchError):
            what = getattr(error, "what", str(error))
            raise PopTorchError(what, where=error.where, fix=error.fix) from error
