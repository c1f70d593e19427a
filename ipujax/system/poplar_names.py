"""The options of Poplar's libraries that ipujax knows by name, and that change nothing here.

Setting one logs the reason why it has no effect. The names are from the option lists of the Poplar
and PopLibs API references: matMul, createWeights, pool, allReduce and Engine.
"""

from __future__ import annotations

from collections.abc import Mapping

_PRODUCTS = {
    "enableFastReduce": "it chooses vertices of reductions, whose rates here are of one kind",
    "enableMultiStageReduce": "reductions of partial sums are planned here as they need",
    "planConstraints": "it fixes parts of the plan; here the planner always searches",
    "remapOutputTensor": "it chooses the mapping of results, which the plan decides here",
    "use128BitConvUnitLoad": "it loads weights twice as fast; ipu.targets has conv_load_bytes",
}

MATMULS: Mapping[str, str] = {
    **_PRODUCTS,
    "fullyConnectedPass": "it has passes share layouts of weights; plans here go by shapes alone",
    "inputRHSIsPreArranged": "it says who rearranges weights, which the model decides here",
}
CONVOLUTIONS: Mapping[str, str] = {
    **_PRODUCTS,
    "enableConvDithering": "it spreads small convolutions; here all are mapped from tile 0 on",
    "gatherConvOutput": "it chooses the mapping of results, which the plan decides here",
    "interIpuPartialsType": "plans here are of one IPU",
    "interTilePartialsType": "partial sums have one type here, partialsType",
    "numIPUs": "plans here are of one IPU",
    "pass": "it has passes share layouts of weights; plans here go by shapes alone",
    "planConstraintsOutputFilename": "plans are shown with POPLIBS_LOG_LEVEL=INFO instead",
    "startTileMultiplier": "it spreads small convolutions; here all are mapped from tile 0 on",
    "tilesPerIPU": "set ipu_model.tiles_per_ipu for the whole chip instead",
}
POOLING: Mapping[str, str] = {
    "optimizeForSpeed": "it trades memory for speed in pooling, which has no plan here",
    "poolUseIntrospectiveMapping": "it maps pooling like its input, as is always done here",
}
COLLECTIVES: Mapping[str, str] = {
    "link": "it chooses between links of a machine, which the model has by its ladder",
    "maxBytesPerTile": "it bounds the buffers of collectives, which are not modelled",
    "syncful.maxBytesPerTile": "it bounds the buffers of collectives, which are not modelled",
    "syncful.useOptimisedLayout": "the mapping of collectives' buffers is not modelled",
    "syncful.useForwardingToSupportStridedGroups": "groups of replicas are consecutive here",
    "topology": "the model's links are those of a ladder",
    "useReplicatedImplementation": "it chooses an implementation, and there is only one here",
    "useSynclessCollectives": "it leaves syncs out, and the model counts them for each step",
}
ENGINE: Mapping[str, str] = {
    "debug.branchRecordTile": "branches are not recorded",
    "debug.computeInstrumentationLevel": "report() models all tiles, without instrumentation",
    "debug.exceptOnSOCError": "virtual IPUs have no such errors",
    "debug.floatPointOpException": "set floating_point_behaviour instead",
    "debug.instrument": "report() models all tiles, without instrumentation",
    "debug.instrumentCompute": "report() models all tiles, without instrumentation",
    "debug.instrumentExternalExchange": "report() models all exchanges, without instrumentation",
    "debug.instrumentControlFlow": "report() models all tiles, without instrumentation",
    "debug.outputAllSymbols": "there is no object code",
    "debug.profilingTile": "report() models all tiles",
    "debug.retainDebugInformation": "lines of the user are always kept",
    "debug.verify": "nothing is loaded onto tiles",
    "exchange.enablePrefetch": "exchanges and computing take turns in the model",
    "exchange.streamBufferOverlap": "buffers of streams are the host's own here",
    "opt.enableInlining": "programs are not inlined in the model",
    "opt.enableMultiAccessCopies": "it chooses vertices of copies, which here have one rate",
    "opt.maxCompilationThreads": "XLA compiles, with threads of its own",
    "opt.maxCopyMergeSize": "each copy on a tile is modelled by itself",
    "prng.enable": "random numbers have keys of JAX here",
    "prng.seed": "set the seed with utils.reset_ipu_seed",
    "streamCallbacks.multiThreadMode": "infeeds are read in threads of their own here",
    "streamCallbacks.numWorkerThreads": "infeeds are read in threads of their own here",
    "target.deterministicWorkers": "results do not depend on workers here",
    "target.extendedMultiTileVertexPatch": "there is no object code",
    "target.hostSyncTimeout": "the host is this process",
    "target.saveArchive": "there is no object code; Compiled.save writes a program",
    "target.syncPollPeriodUs": "the host is this process",
    "target.syncReplicasIndependently": "replicas run together",
    "target.workerStackSizeInBytes": "the stacks of a tile are modelled as 1024 bytes in all",
}
