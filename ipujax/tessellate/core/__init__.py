"""Arrays on tiles, primitives mapped over them, and the descriptions of their vertices."""

from __future__ import annotations

from ipujax.tessellate.core.tile_array import TileShardedArray as TileShardedArray
from ipujax.tessellate.core.tile_array import tile_barrier as tile_barrier
from ipujax.tessellate.core.tile_array import tile_constant_replicated as tile_constant_replicated
from ipujax.tessellate.core.tile_array import tile_constant_sharded as tile_constant_sharded
from ipujax.tessellate.core.tile_array import tile_data_barrier as tile_data_barrier
from ipujax.tessellate.core.tile_array import tile_gather as tile_gather
from ipujax.tessellate.core.tile_array import tile_put_replicated as tile_put_replicated
from ipujax.tessellate.core.tile_array import tile_put_sharded as tile_put_sharded
from ipujax.tessellate.core.tile_common_utils import (
    from_ipu_type_to_numpy_dtype as from_ipu_type_to_numpy_dtype,
)
from ipujax.tessellate.core.tile_common_utils import (
    from_numpy_dtype_to_ipu_type as from_numpy_dtype_to_ipu_type,
)
from ipujax.tessellate.core.tile_common_utils import get_ipu_type_name as get_ipu_type_name
from ipujax.tessellate.core.tile_common_utils import make_ipu_shaped_array as make_ipu_shaped_array
from ipujax.tessellate.core.tile_interpreter import (
    create_ipu_tile_primitive as create_ipu_tile_primitive,
)
from ipujax.tessellate.core.tile_interpreter import (
    create_ipu_tile_primitive_v2 as create_ipu_tile_primitive_v2,
)
from ipujax.tessellate.core.tile_interpreter import (
    declare_ipu_tile_primitive as declare_ipu_tile_primitive,
)
from ipujax.tessellate.core.tile_interpreter import (
    get_ipu_tile_primitive_translation as get_ipu_tile_primitive_translation,
)
from ipujax.tessellate.core.tile_interpreter import (
    register_ipu_tile_primitive as register_ipu_tile_primitive,
)
from ipujax.tessellate.core.tile_interpreter import tile_map as tile_map
from ipujax.tessellate.core.tile_interpreter_hw_primitives import ipu_cycle_count as ipu_cycle_count
from ipujax.tessellate.core.tile_interpreter_hw_primitives import (
    ipu_cycle_count_overhead as ipu_cycle_count_overhead,
)
from ipujax.tessellate.core.tile_interpreter_hw_primitives import (
    ipu_hw_cycle_count as ipu_hw_cycle_count,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    IpuTileMapEquation as IpuTileMapEquation,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_attributes as make_ipu_vertex_attributes,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_constant_info as make_ipu_vertex_constant_info,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_in_info as make_ipu_vertex_in_info,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_inout_info as make_ipu_vertex_inout_info,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_inputs as make_ipu_vertex_inputs,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_io_info as make_ipu_vertex_io_info,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_name_templated as make_ipu_vertex_name_templated,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_out_info as make_ipu_vertex_out_info,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    make_ipu_vertex_outputs as make_ipu_vertex_outputs,
)
from ipujax.tessellate.core.tile_interpreter_primitives import primitive_clone as primitive_clone
from ipujax.tessellate.core.tile_interpreter_primitives import (
    primitive_num_inout_alias_args as primitive_num_inout_alias_args,
)
from ipujax.tessellate.core.tile_interpreter_vertex_utils import (
    make_ipu_vector1d_worker_offsets as make_ipu_vector1d_worker_offsets,
)
from ipujax.tessellate.core.tile_interpreter_vertex_utils import (
    make_ipu_vector1d_worker_offsets_and_sizes as make_ipu_vector1d_worker_offsets_and_sizes,
)
from ipujax.tessellate.lib.pytessellate_ipu_core import IpuVertexIOType as IpuVertexIOType
