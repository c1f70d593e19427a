"""Where the older configuration functions went: the one table behind `utils` and the docs.

The deprecated `create_ipu_config` family is left out of ipujax; each of its functions became
attributes of `IPUConfig`.
"""

from __future__ import annotations

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
