"""The options of an `IPUConfig`: one class per category, and the root below them.

Names, types and defaults are those of "Targeting the IPU from TensorFlow", chapter Configuration
utilities (facts `config.defaults_*`). An option's effect is what it changes here. Each declaration
also says which settings of the compiler and the machine model the option makes, and with which
value `tests/ipujax/system/test_effects.py` tries it; docs/configuration.md is made of them.
"""

from __future__ import annotations

from typing import Any

from ipujax.system.config_enums import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipujax.system.config_schema import ConfigNode, Effect, category, option
from ipujax.system.poplar_options import (
    check_compilation_options,
    check_convolution_options,
    check_matmul_options,
    choose_exchange_goal,
    choose_ring_method,
    log_pooling_options,
)


def _block_size(size: int) -> int | None:
    return size or None


def _merges_remote_buffers(behaviour: MergeRemoteBuffersBehaviour) -> bool:
    return behaviour is not MergeRemoteBuffersBehaviour.NO_MERGING


def _reorders_operations(algorithm: SchedulingAlgorithm) -> bool:
    return algorithm is not SchedulingAlgorithm.POST_ORDER


_MOST = 2**31 - 1
_COUNT = 0, _MOST
_TILES = 0, 1 << 16  # what can be modelled in a second
_BYTES = 0, 2**63 - 1


class Convolutions(ConfigNode):
    """Options of convolutions.

    Attributes:
      poplar_options: Options of the convolution planner, for all convolutions.
        "availableMemoryProportion" is the share of a tile's memory, from 0 to 1, that the
        temporaries of one convolution may take: less makes it slower and can need more code, which
        the planner does not count. "partialsType", "half" or "float", acts as
        `scopes.partials_type`, on numbers too. Others change nothing and are logged.
    """

    poplar_options: dict[Any, Any] = option(
        {},
        effect=Effect.MODEL,
        check=check_convolution_options,
        trial={"availableMemoryProportion": "0"},
    )


class DeviceConnection(ConfigNode):
    """Options that say when devices attach to their IPUs.

    Attributes:
      type: When to attach: while configuring, at the first run, or never. Programs compile in every
        case.
      version: The chip to compile for: "ipu1", "ipu2", "ipu21", or "" for what is attached to.
        Needed with PRE_COMPILE and NEVER, which attach to none.
      enable_remote_buffers: Whether the system that programs are compiled for has remote buffers.
        Without it, optimizers' state stays on the tiles unless a program asks to offload, which is
        refused; not looked at with ALWAYS, where the attached system says so itself (`gc-info -d 0
        -I`).
    """

    type: DeviceConnectionType = option(DeviceConnectionType.ALWAYS, effect=Effect.SYSTEM)
    version: str = option("", effect=Effect.SYSTEM)
    enable_remote_buffers: bool = option(False, effect=Effect.SYSTEM)


class MultiReplicaDistribution(ConfigNode):
    """Several processes that run one program, each with its share of the replicas.

    The other options of a configuration are about the IPUs of this process. `ipurun` starts
    processes; both attributes are then filled in, unless they are set.

    Attributes:
      process_index: Which process this is, from 0 up to but not with `process_count`.
      process_count: How many processes there are: as many as run the program.
    """

    process_index: int = option(0, effect=Effect.SYSTEM)
    process_count: int = option(0, effect=Effect.SYSTEM, limits=_COUNT)


class Experimental(ConfigNode):
    """Options that may change or go without much notice.

    Attributes:
      always_rearrange_copies_on_the_host: Bring streamed data into the device's layout on the host
        instead of on the device: slower, but no memory of the device is spent. It changes nothing
        here: arrays come in the layout that the model gives them.
      enable_remote_buffer_embedding: Keep host embeddings in remote buffers: in reports their rows
        come from streaming memory. The tables themselves are arrays of the host in any case.
    """

    always_rearrange_copies_on_the_host: bool = option(False, effect=Effect.NONE, trial=True)
    enable_remote_buffer_embedding: bool = option(
        False, effect=Effect.MODEL, settings=("model.tables_are_remote",), trial=True
    )
    multi_replica_distribution: MultiReplicaDistribution = category()


class FloatingPointBehaviour(ConfigNode):
    """Options of float16 arithmetic at its limits.

    Until one of these is assigned, even its default, arithmetic is plain JAX.

    Attributes:
      inv: Raise on an invalid operation (IEEE 754).
      div0: Raise on a division by zero.
      oflo: Raise on an overflow.
      esr: Round stochastically. Takes ON and OFF of `StochasticRoundingBehaviour`, too.
      nanoo: Overflow to NaN; without it, to the largest finite number.
      set_all: Count all five others as True, whatever they hold.
    """

    inv: bool = option(False, effect=Effect.VALUES)
    div0: bool = option(False, effect=Effect.VALUES)
    oflo: bool = option(False, effect=Effect.VALUES)
    esr: bool = option(
        False, effect=Effect.VALUES, translate=StochasticRoundingBehaviour.to_bool_if_member
    )
    nanoo: bool = option(False, effect=Effect.VALUES)
    set_all: bool = option(False, effect=Effect.VALUES)


class IoTiles(ConfigNode):
    """Tiles set apart for input and output, so that these overlap with compute.

    Attributes:
      num_io_tiles: How many tiles of each IPU to set apart.
      place_ops_on_io_tiles: Place operations of input and output on those tiles.
      available_memory_proportion: The share of those tiles' memory, from 0 to 1, that data may
        fill; code has the rest. Where an IPU's queues pass more at once, a report says so, and they
        go without these tiles.
    """

    num_io_tiles: int = option(
        0, effect=Effect.MODEL, limits=_TILES, settings=("model.io_tiles",), trial=64
    )
    place_ops_on_io_tiles: bool = option(
        False, effect=Effect.MODEL, settings=("model.overlaps_io",), trial=True
    )
    available_memory_proportion: float = option(
        0.9, effect=Effect.MODEL, limits=(0, 1), settings=("model.io_proportion",), trial=0.001
    )


class IpuModel(ConfigNode):
    """The chip that the IPU Model stands for.

    Attributes:
      compile_ipu_code: Count the memory that code takes, too.
      tiles_per_ipu: How many tiles an IPU has; 0: as many as the chip of that version.
      version: The chip: "ipu1" (GC2), "ipu2" (GC200) or "ipu21" (Bow).
    """

    compile_ipu_code: bool = option(
        True, effect=Effect.MODEL, settings=("model.compiles_code",), trial=False
    )
    tiles_per_ipu: int = option(0, effect=Effect.MODEL, limits=_TILES, trial=1000)
    version: str = option("ipu2", effect=Effect.MODEL, trial="ipu1")


class Matmuls(ConfigNode):
    """Options of matrix multiplications.

    Attributes:
      clear_pass_type: Do not tell the planner whether a multiplication is of the forward, backward
        or update pass. It changes nothing here: plans go by shapes alone.
      poplar_options: Options of the matrix multiplication planner, for all multiplications;
        "availableMemoryProportion" and "partialsType" as for convolutions.
    """

    clear_pass_type: bool = option(False, effect=Effect.NONE, trial=True)
    poplar_options: dict[Any, Any] = option(
        {},
        effect=Effect.MODEL,
        check=check_matmul_options,
        trial={"availableMemoryProportion": "0"},
    )


class NormsExperimental(ConfigNode):
    """Options of normalisations that may change or go without much notice.

    Attributes:
      distributed_batch_norm_replica_group_size: Over how many neighbouring replicas batch
        normalisation takes its statistics when training, recomputation included. Neither for
        pipelines nor with I/O tiles.
    """

    distributed_batch_norm_replica_group_size: int = option(
        1, effect=Effect.VALUES, limits=(1, _MOST), settings=("compiler.batch_norm_group",)
    )


class Norms(ConfigNode):
    """Options of batch, group, layer and instance normalisation alike.

    Attributes:
      use_stable_statistics: Subtract the mean before computing the variance: slower and more exact.
    """

    use_stable_statistics: bool = option(
        False, effect=Effect.VALUES, settings=("compiler.stable_statistics",)
    )
    experimental: NormsExperimental = category()


class Optimizations(ConfigNode):
    """Options of the compiler's optimizations.

    Attributes:
      prefetch_data_streams: Let the host fetch data while the IPUs compute. Without it, an element
        of an infeed is fetched when the step comes that takes it; reports do not count the host's
        own work in either case.
      combine_embedding_lookups: Look up several indices of one table at once, and have its gradient
        in one update: fewer steps, more memory. It pays for small lookups; large ones take as long.
      combine_matmuls: Merge multiplications that share their weights or their input, gradients
        included: one larger product is faster than several, and takes more memory. Operands are
        put side by side first, which costs a copy. Numbers stay the same to rounding.
      enable_graph_outlining: Use the same code for equal operations on different data: less code.
        The copies of data to where the code expects it are not modelled.
      merge_infeed_io_copies: Merge the copies of the arrays of an infeed's element into one, which
        saves a sync for each other array. The memory that this takes is not modelled: an element
        is on the tiles as a whole in any case.
      maximum_cross_replica_sum_buffer_size: How many bytes may wait for a sum over replicas; 0:
        none waits. More means fewer, larger sums: less code, larger temporaries. Worth setting with
        many trainable arrays.
      maximum_reduce_scatter_buffer_size: How many bytes may wait for a reduce-scatter over all
        replicas; 0: none waits. More means fewer, larger ones.
      maximum_inter_ipu_copies_buffer_size: How many bytes may wait for a copy between two IPUs; 0:
        none waits. What waits shares an exchange and its syncs, and is on its IPU for longer. In a
        pipeline, what passes between stages goes together after each tick, whatever this says.
      maximum_send_recv_cluster_size: How many bytes may wait for a transfer to or from the host,
        for its calls (`scopes.outside_compilation_scope`) and tables (`HostEmbedding`); 0: none
        waits. What waits shares a sync.
      minimum_remote_tensor_size: From how many bytes on an array may live in streaming memory.
      merge_remote_buffers: Whether remote buffers that differ in nothing but their data become one,
        to share the code of their transfers. That is always beneficial here, so that only
        NO_MERGING differs.
      enable_gather_simplifier: Optimise embedding lookups more aggressively: one whose indices are
        known when the program is compiled, and in even steps, is a slice, which moves nothing.
      triangular_solve_expander_block_size: Size of the blocks, one tile each, in which triangular
        systems are solved; 0 leaves the choice to the compiler. With N rows there are log2(N /
        size) unrolled steps: small blocks are more parallel, large ones need less control code.
      cholesky_block_size: Size of the blocks, one tile each, in which Cholesky factors are
        computed; 0 leaves the choice to the compiler. With N rows there are N / size unrolled
        steps: small blocks are more parallel, large ones need less control code.
      enable_fast_math: Reassociate and transform arithmetic with no promise of accuracy. It changes
        nothing here: all arithmetic stays as the program has it.
    """

    prefetch_data_streams: bool = option(True, effect=Effect.HOST, trial=False)
    combine_embedding_lookups: bool = option(
        False, effect=Effect.MODEL, settings=("compiler.combine_lookups",), trial=True
    )
    combine_matmuls: bool = option(
        False, effect=Effect.MODEL, settings=("compiler.combine_products",), trial=True
    )
    enable_graph_outlining: bool = option(
        True, effect=Effect.MODEL, settings=("model.outlines",), trial=False
    )
    merge_infeed_io_copies: bool = option(
        False, effect=Effect.MODEL, settings=("model.merges_infeeds",), trial=True
    )
    maximum_cross_replica_sum_buffer_size: int = option(
        0, effect=Effect.MODEL, limits=_BYTES, settings=("model.merged_bytes",), trial=1 << 22
    )
    maximum_reduce_scatter_buffer_size: int = option(
        0,
        effect=Effect.MODEL,
        limits=_BYTES,
        settings=("model.merged_scatter_bytes",),
        trial=1 << 22,
    )
    maximum_inter_ipu_copies_buffer_size: int = option(
        0,
        effect=Effect.MODEL,
        limits=_BYTES,
        settings=("compiler.merged_copy_bytes", "model.merged_copy_bytes"),
        trial=1 << 22,
    )
    maximum_send_recv_cluster_size: int = option(
        0,
        effect=Effect.MODEL,
        limits=_BYTES,
        settings=("compiler.merged_host_bytes", "model.merged_host_bytes"),
        trial=1 << 22,
    )
    minimum_remote_tensor_size: int = option(
        128,
        effect=Effect.MODEL,
        limits=_BYTES,
        settings=("compiler.minimum_remote_bytes",),
        trial=1 << 30,
    )
    merge_remote_buffers: MergeRemoteBuffersBehaviour = option(
        MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
        effect=Effect.MODEL,
        settings=("model.merges_remote",),
        convert=_merges_remote_buffers,
        trial=MergeRemoteBuffersBehaviour.NO_MERGING,
    )
    enable_gather_simplifier: bool = option(
        True, effect=Effect.MODEL, settings=("compiler.simplify_gathers",), trial=False
    )
    triangular_solve_expander_block_size: int = option(
        0,
        effect=Effect.MODEL,
        limits=_COUNT,
        settings=("planner.triangular_block",),
        convert=_block_size,
        trial=32,
    )
    cholesky_block_size: int = option(
        0,
        effect=Effect.MODEL,
        limits=_COUNT,
        settings=("planner.cholesky_block",),
        convert=_block_size,
        trial=32,
    )
    enable_fast_math: bool = option(False, effect=Effect.NONE, trial=True)


class Pooling(ConfigNode):
    """Options of pooling.

    Attributes:
      poplar_options: Options of the pooling planner, for all pooling operations. They change
        nothing here, which is logged: pooling is modelled without a plan.
    """

    poplar_options: dict[Any, Any] = option(
        {},
        effect=Effect.NONE,
        check=log_pooling_options,
        trial={"poolUseIntrospectiveMapping": "false"},
    )


class Scheduling(ConfigNode):
    """Options of the order of operations.

    Attributes:
      algorithm: The algorithm that orders operations. Here POST_ORDER leaves them as the function
        has them, and all others stand for one that keeps little alive.
      maximum_scheduler_lookahead_depth: How many operations LOOK_AHEAD looks ahead; its time grows
        fast with it. It changes nothing here: the one order that keeps little alive is found
        without a search.
      maximum_scheduler_search_space_size: How many orders LOOK_AHEAD compares at most for one
        choice. It changes nothing here: as above, there is no search.
    """

    algorithm: SchedulingAlgorithm = option(
        SchedulingAlgorithm.CHOOSE_BEST,
        effect=Effect.MODEL,
        settings=("model.reorders",),
        convert=_reorders_operations,
        trial=SchedulingAlgorithm.POST_ORDER,
    )
    maximum_scheduler_lookahead_depth: int = option(5, effect=Effect.NONE, limits=_COUNT, trial=2)
    maximum_scheduler_search_space_size: int = option(
        64, effect=Effect.NONE, limits=_COUNT, trial=8
    )


class SystemOptions(ConfigNode):
    """The options of an IPU system; `print(config)` shows every option.

    Options are attributes, in categories: `config.ipu_model.version = "ipu21"`. Use
    `get_attribute_metadata` to ask for the type, default and meaning of one.

    Attributes:
      auto_select_ipus: How many IPUs each device has: 4 for one device of four IPUs, [2, 2] for
        /device:IPU:0 and /device:IPU:1 with two each. The system chooses the IPUs. Up to 16 are of
        the machine that `gc-info -l` lists; 17 to 256 are of a pod of 64, 128 or 256.
      select_ipus: Which IPUs each device has, by the ids that `gc-info -l` lists: 24 for one
        device, [24, 25] for two. Only one of this and `auto_select_ipus` may be set.
      allow_recompute: Recompute values of the forward pass in the backward pass instead of keeping
        them: less memory, more time. Stages of pipelines keep their inputs and recompute the rest,
        but a last stage that goes backward at once only what leads to its checkpoints;
        elsewhere, what elementwise operations give is recomputed, such as norms and activations.
        Operations with state are never repeated. Without it, functions that the original has as
        one operation, such as gelu and softmax, keep what that keeps: its input or its result.
      selection_order: In which order a device's IPUs become shards: which ones, and how many IPUs a
        copy between two shards passes on its way, which costs cycles.
      serialization_output_folder: Directory in which compiled programs are saved; '' saves none.
      compilation_poplar_options: Options of the engine. With {"debug.allowOutOfMemory": "false"},
        compiling a program that does not fit the tiles raises `ipu.errors.OutOfMemoryError`.
        "opt.internalExchangeOptimisationTarget" is what exchanges between tiles are compiled for:
        "cycles", the default, "memory", with less code, or "balanced"; all take the same cycles.
      gcl_poplar_options: Options of the communication library, for all collectives. "method" is
        the way around a ring: "clockwise_ring" or "anticlockwise_ring", which leave half of the
        links idle, "bidirectional_ring_pair", "meet_in_middle_ring", or "auto", the faster of the
        last two. Others change nothing and are logged.
    """

    auto_select_ipus: int | list[int] | tuple[int, ...] = option(
        [], effect=Effect.SYSTEM, limits=_COUNT
    )
    select_ipus: int | list[int] | tuple[int, ...] = option([], effect=Effect.SYSTEM, limits=_COUNT)
    allow_recompute: bool = option(
        False, effect=Effect.MODEL, settings=("compiler.allow_recompute",), trial=True
    )
    selection_order: SelectionOrder = option(SelectionOrder.AUTO, effect=Effect.SYSTEM)
    serialization_output_folder: str = option("", effect=Effect.HOST)
    compilation_poplar_options: dict[Any, Any] = option(
        {},
        effect=Effect.MODEL,
        check=check_compilation_options,
        settings=("model.exchange_goal",),
        convert=choose_exchange_goal,
        trial={"opt.internalExchangeOptimisationTarget": "memory"},
    )
    gcl_poplar_options: dict[Any, Any] = option(
        {},
        effect=Effect.MODEL,
        check=choose_ring_method,
        settings=("model.ring_method",),
        convert=choose_ring_method,
        trial={"method": "clockwise_ring"},
    )
    convolutions: Convolutions = category()
    device_connection: DeviceConnection = category()
    experimental: Experimental = category()
    floating_point_behaviour: FloatingPointBehaviour = category()
    io_tiles: IoTiles = category()
    ipu_model: IpuModel = category()
    matmuls: Matmuls = category()
    norms: Norms = category()
    optimizations: Optimizations = category()
    pooling: Pooling = category()
    scheduling: Scheduling = category()
