"""Options of Poplar's libraries that ipujax knows by name, and that change nothing here.

What each does is told where somebody sets it, so that nobody waits for an effect. From the option
lists of the Poplar and PopLibs API references, matMul, createWeights, pool, allReduce and Engine.
"""

from __future__ import annotations

from collections.abc import Mapping

_PRODUCTS = {
    "enableFastReduce": "it chooses vertices of reductions, whose rates here are of one kind",
    "enableMultiStageReduce": "reductions of partial sums are planned here as they need",
    "planConstraints": "it pins what the planner finds; here it always searches",
    "remapOutputTensor": "it chooses how results lie, which here follows from the plan",
    "use128BitConvUnitLoad": "it loads weights twice as fast; ipu.targets has conv_load_bytes",
}

MATMULS: Mapping[str, str] = {
    **_PRODUCTS,
    "fullyConnectedPass": "it has passes share layouts of weights; plans here go by shapes alone",
    "inputRHSIsPreArranged": "it says who rearranges weights, and here the model finds that",
}
CONVOLUTIONS: Mapping[str, str] = {
    **_PRODUCTS,
    "enableConvDithering": "it spreads small convolutions; here all lie from tile 0 on",
    "gatherConvOutput": "it chooses how results lie, which here follows from the plan",
    "interIpuPartialsType": "plans here are of one IPU",
    "interTilePartialsType": "partial sums have one type here, partialsType",
    "numIPUs": "plans here are of one IPU",
    "pass": "it has passes share layouts of weights; plans here go by shapes alone",
    "planConstraintsOutputFilename": "plans are shown with POPLIBS_LOG_LEVEL=INFO instead",
    "startTileMultiplier": "it spreads small convolutions; here all lie from tile 0 on",
    "tilesPerIPU": "set ipu_model.tiles_per_ipu for the whole chip instead",
}
POOLING: Mapping[str, str] = {
    "optimizeForSpeed": "it trades memory for speed in pooling, which has no plan here",
    "poolUseIntrospectiveMapping": "it lays pooling out as its input lies, as it always does here",
}
COLLECTIVES: Mapping[str, str] = {
    "link": "it chooses between links of a machine, which the model has by its ladder",
    "maxBytesPerTile": "it bounds the buffers of collectives, which are not modelled",
    "syncful.maxBytesPerTile": "it bounds the buffers of collectives, which are not modelled",
    "syncful.useOptimisedLayout": "how buffers of collectives lie is not modelled",
    "syncful.useForwardingToSupportStridedGroups": "groups of replicas are consecutive here",
    "topology": "the model's links are those of a ladder",
    "useReplicatedImplementation": "it chooses an implementation, and here is one",
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
    "opt.internalExchangeOptimisationTarget": "exchanges are modelled by their bytes alone",
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
