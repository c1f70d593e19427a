"""Advice for names of the original that ipujax does not have: what to use instead.

The deprecated `create_ipu_config` family is left
out; each of its functions became attributes of `IPUConfig`. Whole modules are not there yet, and
later SDKs had more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from ipujax.ground.errors import NotThereYetError

_FLOATING_POINT = "floating_point_behaviour.inv, .div0, .oflo, .esr, .nanoo or .set_all"

# Function of `utils` -> what to use now.
MIGRATION: dict[str, str] = {
    "create_ipu_config": "an instance of `IPUConfig`: its attributes are the old arguments",
    "auto_select_ipus": "`IPUConfig.auto_select_ipus`",
    "select_ipus": "`IPUConfig.select_ipus`",
    "set_compilation_options": "`IPUConfig.compilation_poplar_options`",
    "set_convolution_options": "`IPUConfig.convolutions.poplar_options`",
    "set_experimental_multi_replica_distribution_options": (
        "`IPUConfig.experimental.multi_replica_distribution.process_count` and `.process_index`"
    ),
    "set_floating_point_behaviour_options": f"`IPUConfig.{_FLOATING_POINT}`",
    "set_gcl_options": "`IPUConfig.gcl_poplar_options`",
    "set_io_tile_options": (
        "`IPUConfig.io_tiles.num_io_tiles`, `.place_ops_on_io_tiles` and "
        "`.available_memory_proportion`"
    ),
    "set_ipu_connection_type": (
        "`IPUConfig.device_connection.type`, `.version` and `.enable_remote_buffers`"
    ),
    "set_ipu_model_options": (
        "`IPUConfig.ipu_model.version`, `.tiles_per_ipu` and `.compile_ipu_code`"
    ),
    "set_matmul_options": "`IPUConfig.matmuls.poplar_options` and `.clear_pass_type`",
    "set_norm_options": (
        "`IPUConfig.norms.use_stable_statistics` and "
        "`IPUConfig.norms.experimental.distributed_batch_norm_replica_group_size`"
    ),
    "set_optimization_options": "the attributes of `IPUConfig.optimizations`",
    "set_pooling_options": "`IPUConfig.pooling.poplar_options`",
    "set_recomputation_options": "`IPUConfig.allow_recompute`",
    "set_report_options": "`executable.report()`; reports need no option any more",
    "set_serialization_options": "`IPUConfig.serialization_output_folder`",
    "set_transfer_options": "nothing: virtual IPUs have no transfers to verify",
    "set_verification_options": "nothing: virtual IPUs have no transfers to verify",
    "extract_compile_reports": "`executable.report()`; events hold no reports any more",
    "extract_execute_reports": "`executable.report()`; events hold no reports any more",
    "extract_poplar_serialized_graphs": "`lowered.as_text()`; events hold no graphs any more",
}

_COMPILED = (
    "`executable = ipu.compile(f).lower(*args).compile()` and `executable.save(path)`; any other "
    "process has it back by `ipu.load_executable(path)`"
)

# Module or function of `ipujax` -> what to use now.
NOT_YET: dict[str, str] = {
    "application_compile_op": _COMPILED,
    "autoshard": "`scopes.ipu_shard` around each part",
    "autoshard_cnn": "`scopes.ipu_shard` around each part",
    "distributed": "`popdist`, `horovod` and `ipu_multi_worker_strategy`",
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
