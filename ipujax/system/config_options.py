"""Every option of an `IPUConfig` but the root's own: one class per category.

Names, types and defaults are those of "Targeting the IPU from TensorFlow", chapter Configuration
utilities (facts `config.defaults_*`). The last word of an option says what it changes here.
"""

from __future__ import annotations

from typing import Any

from ipujax.system.config_enums import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
)
from ipujax.system.config_schema import ConfigNode, Effect, category, option


class Convolutions(ConfigNode):
    """Options of convolutions."""

    poplar_options: dict[Any, Any] = option(
        {},
        """Options of the convolution planner, for all convolutions. "availableMemoryProportion"
        is the share of a tile's memory, from 0 to 1, that the temporaries of one convolution may
        take: less makes it slower and can need more code, which the planner does not count.""",
        Effect.MODEL,
    )


class DeviceConnection(ConfigNode):
    """When devices attach to their IPUs."""

    type: DeviceConnectionType = option(
        DeviceConnectionType.ALWAYS,
        """When to attach: while configuring, at the first run, or never. Programs compile in
        every case.""",
        Effect.SYSTEM,
    )
    version: str = option(
        "",
        """The chip to compile for: "ipu1", "ipu2", "ipu21", or "" for what is attached to. Needed
        with PRE_COMPILE and NEVER, which attach to none.""",
        Effect.SYSTEM,
    )
    enable_remote_buffers: bool = option(
        False,
        """Whether the system that programs are compiled for has remote buffers; not looked at
        with ALWAYS, where the attached system says so itself (`gc-info -d 0 -I`).""",
        Effect.SYSTEM,
    )


class MultiReplicaDistribution(ConfigNode):
    """Several processes that run one program, each with its share of the replicas.

    Replicas are not distributed over processes yet: configuring more than one is an error.
    """

    process_index: int = option(
        0, "Which process this is, from 0 up to but not with `process_count`.", Effect.SYSTEM
    )
    process_count: int = option(
        0, "How many processes there are: 0 or 1, all replicas run in this process.", Effect.SYSTEM
    )


class Experimental(ConfigNode):
    """Options that may change or go without much notice."""

    always_rearrange_copies_on_the_host: bool = option(
        False,
        """Bring streamed data into the device's layout on the host instead of on the device:
        slower, but no memory of the device is spent.""",
        Effect.MODEL,
    )
    enable_remote_buffer_embedding: bool = option(
        False, "Keep host embeddings in remote buffers.", Effect.MODEL
    )
    multi_replica_distribution: MultiReplicaDistribution = category()


class FloatingPointBehaviour(ConfigNode):
    """What float16 arithmetic does at its limits.

    Until one of these is assigned, be it to its default, arithmetic is plain JAX.
    """

    inv: bool = option(False, "Raise on an invalid operation (IEEE 754).", Effect.VALUES)
    div0: bool = option(False, "Raise on a division by zero.", Effect.VALUES)
    oflo: bool = option(False, "Raise on an overflow.", Effect.VALUES)
    esr: bool = option(False, "Round stochastically.", Effect.VALUES)
    nanoo: bool = option(
        False, "Overflow to NaN; without it, to the largest finite number.", Effect.VALUES
    )
    set_all: bool = option(
        False, "Count all five others as True, whatever they hold.", Effect.VALUES
    )


class IoTiles(ConfigNode):
    """Tiles set apart for input and output, so that these overlap with compute."""

    num_io_tiles: int = option(0, "How many tiles of each IPU to set apart.", Effect.MODEL)
    place_ops_on_io_tiles: bool = option(
        False, "Place operations of input and output on those tiles.", Effect.MODEL
    )
    available_memory_proportion: float = option(
        0.9,
        """The share of those tiles' memory, from 0 to 1, that data may fill; code has the rest.
        If data needs more, operations stay off those tiles, and a warning says so.""",
        Effect.MODEL,
    )


class IpuModel(ConfigNode):
    """The chip that the IPU Model stands for."""

    compile_ipu_code: bool = option(True, "Count the memory that code takes, too.", Effect.MODEL)
    tiles_per_ipu: int = option(
        0, "How many tiles an IPU has; 0: as many as the chip of that version.", Effect.MODEL
    )
    version: str = option(
        "ipu2", 'The chip: "ipu1" (GC2), "ipu2" (GC200) or "ipu21" (Bow).', Effect.MODEL
    )


class Matmuls(ConfigNode):
    """Options of matrix multiplications."""

    clear_pass_type: bool = option(
        False,
        """Do not tell the planner whether a multiplication is of the forward, backward or update
        pass. Can save memory where batches are large.""",
        Effect.MODEL,
    )
    poplar_options: dict[Any, Any] = option(
        {},
        """Options of the matrix multiplication planner, for all multiplications;
        "availableMemoryProportion" as for convolutions.""",
        Effect.MODEL,
    )


class NormsExperimental(ConfigNode):
    """Options of normalisations that may change or go without much notice."""

    distributed_batch_norm_replica_group_size: int = option(
        1,
        """Over how many neighbouring replicas batch normalisation takes its statistics when
        training, recomputation included. Neither for pipelines nor with I/O tiles.""",
        Effect.VALUES,
    )


class Norms(ConfigNode):
    """Options of batch, group, layer and instance normalisation alike."""

    use_stable_statistics: bool = option(
        False,
        "Subtract the mean before computing the variance: slower and more exact.",
        Effect.VALUES,
    )
    experimental: NormsExperimental = category()


class Optimizations(ConfigNode):
    """What the compiler trades against what."""

    prefetch_data_streams: bool = option(
        True, "Let the host fetch data while the IPUs compute.", Effect.HOST
    )
    combine_embedding_lookups: bool = option(
        False, "Look up several indices of one table at once: faster, more memory.", Effect.MODEL
    )
    combine_matmuls: bool = option(
        False, "Merge multiplications that share their weights or their input.", Effect.MODEL
    )
    enable_graph_outlining: bool = option(
        True,
        """Use the same code for equal operations on different data: less code, but the data must
        be copied to where the code expects it.""",
        Effect.MODEL,
    )
    merge_infeed_io_copies: bool = option(
        False, "Merge the copies of an infeed's arrays into one: faster, more memory.", Effect.MODEL
    )
    maximum_cross_replica_sum_buffer_size: int = option(
        0,
        """How many bytes may wait for a sum over replicas; 0: none waits. More means fewer, larger
        sums: less code, larger temporaries. Worth setting with many trainable arrays.""",
        Effect.MODEL,
    )
    maximum_reduce_scatter_buffer_size: int = option(
        0, "How many bytes may wait for a reduce-scatter; 0: none waits.", Effect.MODEL
    )
    maximum_inter_ipu_copies_buffer_size: int = option(
        0, "How many bytes may wait for a copy between IPUs; 0: none waits.", Effect.MODEL
    )
    maximum_send_recv_cluster_size: int = option(
        0,
        "How many bytes may wait for a transfer to or from the host; 0: none waits.",
        Effect.MODEL,
    )
    minimum_remote_tensor_size: int = option(
        128, "From how many bytes on an array may live in remote memory.", Effect.MODEL
    )
    merge_remote_buffers: MergeRemoteBuffersBehaviour = option(
        MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
        "Whether remote buffers that differ in nothing but their data become one, to share code.",
        Effect.MODEL,
    )
    enable_gather_simplifier: bool = option(
        True, "Optimise embedding lookups more aggressively.", Effect.MODEL
    )
    triangular_solve_expander_block_size: int = option(
        0,
        """Size of the blocks, one tile each, in which triangular systems are solved; 0 leaves the
        choice to the compiler. With N rows there are log2(N / size) unrolled steps, so small
        blocks are more parallel and large ones need less code.""",
        Effect.MODEL,
    )
    cholesky_block_size: int = option(
        0,
        """Size of the blocks, one tile each, in which Cholesky factors are computed; 0 leaves the
        choice to the compiler. With N rows there are N / size unrolled steps, so small blocks are
        more parallel and large ones need less code.""",
        Effect.MODEL,
    )
    enable_fast_math: bool = option(
        False, "Reassociate and transform arithmetic with no promise of accuracy.", Effect.NONE
    )


class Pooling(ConfigNode):
    """Options of pooling."""

    poplar_options: dict[Any, Any] = option(
        {}, "Options of the pooling planner, for all pooling operations.", Effect.MODEL
    )


class Scheduling(ConfigNode):
    """How operations are put in order."""

    algorithm: SchedulingAlgorithm = option(
        SchedulingAlgorithm.CHOOSE_BEST, "The algorithm that orders operations.", Effect.MODEL
    )
    maximum_scheduler_lookahead_depth: int = option(
        5, "How many operations LOOK_AHEAD looks ahead; its time grows fast with it.", Effect.MODEL
    )
    maximum_scheduler_search_space_size: int = option(
        64, "How many orders LOOK_AHEAD compares at most for one choice.", Effect.MODEL
    )
