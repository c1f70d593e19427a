"""Advice for names of the original that ipujax does not have: what to use instead.

Whole modules are not there yet, and later SDKs had more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from ipujax.ground.errors import NotThereYetError

_COMPILED = (
    "`executable = ipu.compile(f).lower(*args).compile()` and `executable.save(path)`; any other "
    "process has it back by `ipu.load_executable(path)`"
)

# Module or function of `ipujax` -> what to use now.
NOT_YET: dict[str, str] = {
    "application_compile_op": _COMPILED,
    "autoshard": "`scopes.ipu_shard` around each part",
    "autoshard_cnn": "`scopes.ipu_shard` around each part",
    "eager": "`ipu.compile` around what is to run on IPUs; the rest runs where JAX runs it",
    "embedded_runtime": _COMPILED,
    "f8_ops": "JAX's own types, such as `x.astype(jax.numpy.float8_e4m3fn)`",
    "ipu_horovod_strategy": "`horovod.ipu_horovod_strategy`, where the original has it",
    "ipu_multi_replica_strategy": "`horovod.ipu_multi_replica_strategy`, likewise",
    "serving": _COMPILED,
    "test_utils": "`numpy.testing`, on a program's results and those of `jax.jit`",
    "vertex_edsl": "`custom_ops.codelet_expression_op`",
    "within_replica_ops": (
        "values of one `scopes.ipu_shard` used in another: copies between IPUs are inserted"
    ),
}


def describe_missing_name(name: str) -> str:
    """Returns the message for a name in `NOT_YET`."""
    return f"ipujax has no '{name}' yet. Instead: {NOT_YET[name]}"


class NotYetFinder:
    """An import finder whose errors say what to use instead of a missing module."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds nothing.

        Raises:
          NotThereYetError: (a `ModuleNotFoundError`) a module that is not there yet.
        """
        package, _, name = fullname.rpartition(".")
        if package == "ipujax" and name in NOT_YET:
            # Without the error's `name`: `from ipujax import popart` would pass over it.
            raise NotThereYetError(describe_missing_name(name))
        return None
