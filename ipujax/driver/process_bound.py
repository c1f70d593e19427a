"""The base class of objects that cannot leave their process, such as compiled code."""

from __future__ import annotations

from typing import NoReturn, Self

from ipujax.ground import ConfigTypeError


class BoundToProcess:
    """An immutable object that is its own copy and cannot be pickled."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise ConfigTypeError(
            f"a {type(self).__name__} cannot be pickled: it holds code of this process",
            fix="write an executable into a file with `save(path)` and read it with "
            "ipu.load_executable; or compile in the process that is to run it",
        )
