"""The function `install()`, which lets `import tessellate_ipu` find this package."""

from __future__ import annotations

from ipujax.ground import FailedPreconditionError
from ipujax.standin import stand_in_for
from ipujax.tessellate.older_jax import accept_older_calls


def install() -> None:
    """Makes `import tessellate_ipu` find this package, and JAX know the backend "ipu".

    It acts in this process, and in Python processes that it starts. `jax.jit(f, backend="ipu")`
    then is `ipu.compile`, `jax.devices("ipu")` gives the virtual IPU, and `jax.core` has the name
    `Primitive` again.

    ipujax never calls this by itself: call it before the first `import tessellate_ipu`, or run a
    script by `python -m ipujax.tessellate script.py`.

    Raises:
      FailedPreconditionError: (a `RuntimeError`) another `tessellate_ipu` is imported already.
    """
    imported_module = stand_in_for("tessellate_ipu", "ipujax.tessellate")
    if imported_module is not None:
        raise FailedPreconditionError(
            "tessellate_ipu is imported already, from "
            f"{getattr(imported_module, '__file__', 'elsewhere')}",
            fix="call ipujax.tessellate.install() before anything imports tessellate_ipu",
        )
    accept_older_calls()
