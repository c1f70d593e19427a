"""The packages of the SDK that programs use together with PopTorch, PopART or TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable

from ipujax.ground import DistributionError
from ipujax.standin.finder import stand_in_for


def install_popdist() -> None:
    """Has `import popdist`, and modules in it, find `ipujax.popdist`; `horovod` ours as well.

    That holds for this process, and for Python processes that it starts. `install()` of PopTorch's
    or PopART's stand-in calls this.

    Raises:
      DistributionError: (a `ValueError`) another `popdist` or `horovod` is imported already.
    """
    _install(("popdist", "horovod"))


def install_libpvti() -> None:
    """Has `import libpvti` find `ipujax.libpvti`, as `install_popdist` does.

    Raises:
      DistributionError: (a `ValueError`) another `libpvti` is imported already.
    """
    _install(("libpvti",))


def _install(names: Iterable[str]) -> None:
    for name in names:
        there = stand_in_for(name, f"ipujax.{name}")
        if there is not None:
            raise DistributionError(
                f"{name} is imported already, from {getattr(there, '__file__', 'elsewhere')}",
                fix=f"call install() before anything imports {name}",
            )
