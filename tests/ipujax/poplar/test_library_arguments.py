"""Whatever PopLibs' functions are given, what they raise is an error of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipujax import poplar
from ipujax.errors import IPUError
from ipujax.poplar import poplin, popnn, popops, poprand, poputil, program
from tests.ipujax.poplar.building_graphs import add_tensor, make_graph

f32 = np.float32
GRAPH, PROG = make_graph(), program.Sequence()
X, ROW = (add_tensor(GRAPH, np.ones(shape, f32), "x") for shape in ([4, 4], [4]))
TWO, SLICES = (add_tensor(GRAPH, np.ones(shape, f32), "two") for shape in ([2, 4], [2, 1, 4]))
IMAGE, KERNEL = (add_tensor(GRAPH, np.ones(s, f32), "image") for s in ([1, 1, 4], [1, 1, 1, 2]))
SEED = add_tensor(GRAPH, np.array([0, 1], np.uint32), "seed")
INDEX = add_tensor(GRAPH, np.array([0, 1], np.int32), "index")
FLAGS = add_tensor(GRAPH, np.ones(4, bool), "flags")
SUM = popops.ReduceParams(popops.Operation.ADD)
TOP = popops.TopKParams(2, True, popops.SortOrder.NONE)
CONV = poplin.ConvParams(poplar.FLOAT, 1, [4], [2], 1, 1, 1)
RELU, SQUARES = popnn.NonLinearityType.RELU, popnn.LossType.SUM_SQUARED_LOSS
POOL = (popnn.pooling.PoolingType.MAX, [4], [2], [1], [0], [0], 1, 1, poplar.FLOAT)
FLOAT, G, P = poplar.FLOAT, GRAPH, PROG

CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (popops.add, (G, X, X, P)),
    (popops.addInPlace, (G, X, X, P)),
    (popops.addWithOutput, (G, X, X, X, P)),
    (popops.exp, (G, X, P)),
    (popops.select, (G, X, X, X, P)),
    (popops.map, (G, popops.expr._1, [X], P)),
    (popops.mapWithOutput, (G, popops.expr._1, [X], X, P)),
    (popops.scaledAddTo, (G, X, X, 1.0, P)),
    (popops.fill, (G, X, P, 1.0)),
    (popops.cast, (G, X, poplar.HALF, P)),
    (popops.iota, (G, ROW, 0, P)),
    (popops.reduce, (G, X, [0], SUM, P)),
    (popops.reduceWithOutput, (G, X, ROW, [0], SUM, P)),
    (popops.reduceMany, (G, [popops.SingleReduceOp(X, [0], SUM)], [], P)),
    (popops.ReduceParams, (popops.Operation.ADD, False, None)),
    (popops.dynamicSlice, (G, X, SEED, [0, 1], [1, 1], P)),
    (popops.dynamicUpdate, (G, X, X, SEED, [0, 1], [4, 4], P)),
    (popops.multiSlice, (G, X, INDEX, [0], [1], P)),
    (popops.multiUpdateAdd, (G, X, SLICES, INDEX, 1.0, [0], [1], P)),
    (popops.gather, (G, X, INDEX, 0, P)),
    (popops.scatter, (G, X, INDEX, TWO, 1, [1], [0], [0], P)),
    (popops.topK, (G, P, X, TOP)),
    (popops.TopKParams, (1, True, popops.SortOrder.NONE)),
    (popops.sort, (G, X, 0, P)),
    (popops.pad, (G, X, [1, 1], [1, 1], 0.0)),
    (popops.countedLoop, (G, 0, 4, 1, lambda counter: program.Sequence())),
    (popops.encodeOneHot, (G, INDEX, TWO, P)),
    (popops.createSliceableTensor, (G, FLOAT, [4, 4], [0], [1])),
    (poplin.matMul, (G, X, X, P)),
    (poplin.matMulAcc, (G, X, 1.0, X, X, P)),
    (poplin.createMatMulInputLHS, (G, FLOAT, [4, 4], [4, 4])),
    (poplin.ConvParams, (FLOAT, 1, [4], [2], 1, 1, 1)),
    (poplin.convolution, (G, IMAGE, KERNEL, CONV, False, P)),
    (poplin.cholesky, (G, X, True, P)),
    (poplin.triangularSolve, (G, X, X, True, True, False, P)),
    (popnn.nonLinearity, (G, RELU, X, P)),
    (popnn.nonLinearityInputGradient, (G, RELU, X, X, P)),
    (popnn.calcLoss, (G, X, X, ROW, X, SQUARES)),
    (popnn.bn.batchNormStatistics, (G, X, 1e-3, P, False)),
    (popnn.bn.batchNormalise, (G, X, ROW, ROW, ROW, ROW, P)),
    (popnn.gn.groupNormStatistics, (G, X, 1e-3, P, 2, False)),
    (popnn.gn.groupNormalise, (G, X, ROW, ROW, ROW, ROW, P)),
    (popnn.pooling.PoolParams, POOL),
    (popnn.lstm.LstmParams, (FLOAT, 1, 2, [3, 4])),
    (popnn.lstm.createWeights, (G, popnn.lstm.LstmParams(FLOAT, 1, 2, [3, 4]))),
    (poprand.uniform, (G, SEED, 0, X, FLOAT, 0.0, 1.0, P)),
    (poprand.truncatedNormal, (G, SEED, 0, X, FLOAT, 0.0, 1.0, 1.5, P)),
    (poprand.bernoulli, (G, SEED, 0, X, FLOAT, 0.5, P)),
    (poprand.dropout, (G, SEED, 0, X, X, 0.5, 1.0, P)),
    (poprand.setSeed, (G, SEED, 0, P)),
    (poputil.mapTensorLinearly, (G, X, 1, 1)),
    (poputil.broadcastToMatch, (X, ROW)),
    (poputil.getTileImbalance, ([[poplar.Interval(0, 1)]], 0, 1)),
    (poputil.templateVertex, ("V", FLOAT)),
    (poputil.duplicate, (G, X, P, "copy")),
    (poputil.cloneToIpu, (G, X, 0, "clone")),
    (poputil.copyToIpu, (G, X, P, 0, "copy")),
    (poputil.splitRegions, ([poplar.Interval(0, 9)], 2, 3, 4)),
    (poputil.splitRegionsBetweenWorkers, (G.getTarget(), [[poplar.Interval(0, 9)]], 2, 4)),
    (G.getSortedContiguousRegions, (X, [poplar.Interval(0, 9)], False)),
    (poplar.IPUModel().createDevice().createVirtualDevice, (4,)),
    (popops.allTrue, (G, FLAGS, P, "all")),
]
BAD = (None, "x", -1, 2.5, object(), {}, [None], np.ones(2), INDEX)


@pytest.mark.parametrize(
    ("function", "given"), CALLS, ids=lambda each: getattr(each, "__name__", "")
)
def test_errors_are_ours(function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    function(*given)
    for place in range(len(given)):
        for bad in BAD:
            with contextlib.suppress(IPUError, NotImplementedError):
                function(*given[:place], bad, *given[place + 1 :])


def test_every_library_accepts_its_codelets_being_added() -> None:
    for library in (popops, poplin, popnn, poprand, poputil):
        library.addCodelets(G)
        with pytest.raises(poplar.type_error, match="graph"):
            library.addCodelets(X)
