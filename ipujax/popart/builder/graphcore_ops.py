"""The operators of Graphcore's own domain that a builder can add."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ipujax.popart.builder import adapters, parameters
from ipujax.popart.builder.operator_signatures import MOST, REQUIRED, Operation, Request
from ipujax.popart.options.option_kinds import ReductionType, ScatterReduction, TensorRemapType

_DOMAIN = "ai.graphcore"

_PLAIN = {  # with the numbers of their inputs
    "Atan2": 2, "BitwiseAnd": 2, "BitwiseNot": 1, "BitwiseOr": 2, "BitwiseXnor": 2,
    "BitwiseXor": 2, "Detach": 1, "Expm1": 1, "Fmod": 2, "Gelu": 1, "GeluErf": 1, "Log1p": 1,
    "NearbyInt": 1, "Nop": 1, "Remainder": 2, "Round": 1, "Swish": 1,
}  # fmt: skip

_MEAN = {"reduction": ReductionType.Mean}
_COLLECTIVE = {"collectiveOperator": None, "commGroup": None}
_PART = {"axes": REQUIRED, "sizes": REQUIRED}
_SCATTERED = {"axis_size": REQUIRED, "axis": -1, "reduction": ScatterReduction.Sum}
_INIT = {"shape": REQUIRED, "data_type": REQUIRED, "init_type": REQUIRED, "batch_axis": -1}
_PACKED = ("maxSequenceLengths", "resultSize", "callbackBatchSize", "callback")

_OTHERS: dict[str, tuple[str, tuple[int, int], dict[str, Any], int | None]] = {
    "abort": ("Abort", (0, 1), {}, 0),
    "batchnormalization": (
        "BatchNormalization",
        (5, 5),
        {"epsilon": 1e-5, "momentum": 0.9},
        None,
    ),
    "bucketize": ("Bucketize", (2, 2), {"right": 0}, 1),
    "call": ("Call", (0, MOST), {"callee": REQUIRED}, None),
    "copyvarupdate": ("CopyVarUpdate", (2, 2), {}, 1),
    "ctcbeamsearchdecoder": (
        "CtcBeamSearchDecoder",
        (2, 2),
        {"blank": 0, "beam_width": 100, "top_paths": 1},
        3,
    ),
    "ctcloss": (
        "Ctc",
        (4, 4),
        {**_MEAN, "blank": 0, "outDataType": "UNDEFINED", "zeroInfinity": False},
        1,
    ),
    "depthtospace": ("DepthToSpace", (1, 1), {"blocksize": REQUIRED, "mode": REQUIRED}, 1),
    "dynamicadd": ("DynamicAdd", (3, 3), _PART, 1),
    "dynamicslice": ("DynamicSlice", (2, 3), {**_PART, "noOverlap": 0}, 1),
    "dynamicupdate": ("DynamicUpdate", (3, 3), {**_PART, "noOverlap": 0}, 1),
    "dynamiczero": ("DynamicZero", (2, 2), _PART, 1),
    "groupedgather": ("GroupedGather", (2, 2), {"axis": 0, "group_size": 1}, 1),
    "groupedscatterreduce": (
        "ScatterReduce",
        (2, 3),
        {**_SCATTERED, "group_size": 1, "enable_index_broadcast": 1},
        1,
    ),
    "groupnormalization": (
        "GroupNormalization",
        (3, 3),
        {"num_groups": REQUIRED, "epsilon": 1e-5},
        3,
    ),
    "identityloss": ("IdentityLoss", (1, 1), _MEAN, 1),
    "incrementmod": ("IncrementMod", (1, 1), {"increment": REQUIRED, "modulus": REQUIRED}, 1),
    "init": ("Init", (0, 0), _INIT, 1),
    "l1loss": ("L1", (1, 1), {"lambda": REQUIRED, **_MEAN}, 1),
    "lstm": ("LSTM", (2, 5), {"outputFullSequence": 1}, 2),
    "multiconv": (
        "MultiConv",
        (1, MOST),
        {
            "dilations": (),
            "inDilations": (),
            "pads": (),
            "outPads": (),
            "strides": (),
            "availableMemoryProportions": (),
            "partialsTypes": (),
            "planType": None,
            "perConvReservedTiles": None,
            "cycleBackOff": None,
            "enableConvDithering": (),
        },
        0,  # as many as there are convolutions
    ),
    "nllloss": (
        "Nll",
        (2, 2),
        {**_MEAN, "ignoreIndex": None, "inputIsLogProbability": False},
        1,
    ),
    "normalize_image": ("NormalizeImage", (3, 3), {"scale": 1.0}, 1),
    "packedDataBlock": ("PackedDataBlock", (5, MOST), dict.fromkeys(_PACKED, REQUIRED), 1),
    "printtensor": (
        "PrintTensor",
        (1, 1),
        {
            "print_gradient": 1,
            "debugContext": "",
            "title": "",
            "summariseThreshold": 1000,
            "edgeItems": 3,
            "maxLineWidth": 75,
            "digits": 8,
            "floatFormat": 0,
            "separator": " ",
            "openBracket": "[",
            "closeBracket": "]",
        },
        1,
    ),
    "reducemedian": ("ReduceMedian", (1, 1), {"axes": None, "keepdims": 1}, 2),
    "replicatedallreduce": ("ReplicatedAllReduce", (1, 1), _COLLECTIVE, 1),
    "replicatedreducescatter": ("ReplicatedReduceScatter", (1, 1), _COLLECTIVE, 1),
    "reshape": ("Reshape", (1, 1), {"shape": REQUIRED}, 1),
    "reverse": ("Reverse", (1, 1), {"dimensions": REQUIRED}, 1),
    "scale": ("Scale", (1, 1), {"scale": REQUIRED}, 1),
    "scaledadd": ("ScaledAdd", (2, 4), {"scale0": 1.0, "scale1": 1.0}, 1),
    "scatterreduce": ("ScatterReduce", (2, 3), {**_SCATTERED, "enable_index_broadcast": 1}, 1),
    "sequenceslice": ("SequenceSlice", (5, 5), {"zeroUnused": 0}, 1),
    "shapeddropout": ("ShapedDropout", (1, 1), {"shape": REQUIRED, "ratio": 0.5}, 1),
    "slice": ("Slice", (1, 1), {"ends": REQUIRED, "starts": REQUIRED, "axes": None}, 1),
    "sort": ("Sort", (1, 1), {"axis": -1, "descending": 0, "stable": 0}, 2),
    "splinebasis": ("SplineBasis", (3, 3), {"degree": REQUIRED}, 2),
    "splineweighting": ("SplineWeighting", (4, 4), {}, 1),
    "subsample": ("Subsample", (1, 1), {"strides": REQUIRED}, 1),
    "tensorremap": ("TensorRemap", (1, 1), {"remap_type": TensorRemapType.FwdBwdReverse}, 1),
}

_KINDS = {
    "multiconv": {"args": parameters.ANY},
    "reducemedian": {"axes": parameters.INTS},
    "reshape": {"args": parameters.ONE_OR_MORE},
}
_CONTEXTS = {"ctcbeamsearchdecoder": "debug_context", "tensorremap": "debugPrefix"}

_ADAPTED: dict[str, Callable[[Request], Request]] = {
    "abort": adapters.adapt_abort,
    "call": adapters.adapt_call,
    "ctcloss": adapters.adapt_ctc_loss,
    "init": adapters.adapt_init,
    "lstm": adapters.adapt_lstm,
    "multiconv": adapters.adapt_multi_conv,
    "printtensor": adapters.adapt_print_tensor,
    "replicatedallreduce": adapters.adapt_collective,
    "replicatedreducescatter": adapters.adapt_collective,
}


@functools.cache
def graphcore_operations() -> dict[str, Operation]:
    """Returns Graphcore's own operators by the names of a builder's methods."""
    plain = {
        name.lower(): Operation(_DOMAIN, name, 1, {}, 1, (count, count))
        for name, count in _PLAIN.items()
    }
    return plain | {
        method: Operation(
            _DOMAIN,
            name,
            1,
            attributes,
            outputs,
            inputs,
            _KINDS.get(method, {}),
            _CONTEXTS.get(method, "debugContext"),
            adapted=_ADAPTED.get(method),
        )
        for method, (name, inputs, attributes, outputs) in _OTHERS.items()
    }
