"""popops: operations on tensors, added to a sequence.

Elementwise operations are there in three forms, `add`, `addInPlace` and `addWithOutput`: a new
tensor on the tiles of the first operand, the first operand itself, or a tensor that is given. An
operand is a tensor or a number; shapes broadcast, types do not.
"""

from __future__ import annotations

from typing import Any

from ipujax.poplar import popops_expressions as expr
from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_elementwise, read_title
from ipujax.poplar.library_operations import addCodelets as addCodelets
from ipujax.poplar.popops_elementwise import FORMS
from ipujax.poplar.popops_loops import countedForLoop as countedForLoop
from ipujax.poplar.popops_loops import countedLoop as countedLoop
from ipujax.poplar.popops_padding import pad as pad
from ipujax.poplar.popops_padding import padding as padding
from ipujax.poplar.popops_reductions import Operation as Operation
from ipujax.poplar.popops_reductions import ReduceParams as ReduceParams
from ipujax.poplar.popops_reductions import SingleReduceOp as SingleReduceOp
from ipujax.poplar.popops_reductions import allTrue as allTrue
from ipujax.poplar.popops_reductions import reduce as reduce
from ipujax.poplar.popops_reductions import reduceMany as reduceMany
from ipujax.poplar.popops_reductions import reduceWithOutput as reduceWithOutput
from ipujax.poplar.popops_scaled import cast as cast
from ipujax.poplar.popops_scaled import castWithOutput as castWithOutput
from ipujax.poplar.popops_scaled import fill as fill
from ipujax.poplar.popops_scaled import iota as iota
from ipujax.poplar.popops_scaled import scaledAddTo as scaledAddTo
from ipujax.poplar.popops_scaled import scaledSubtractFrom as scaledSubtractFrom
from ipujax.poplar.popops_scaled import zero as zero
from ipujax.poplar.popops_slices import GatherParams as GatherParams
from ipujax.poplar.popops_slices import SlicePlan as SlicePlan
from ipujax.poplar.popops_slices import SortOrder as SortOrder
from ipujax.poplar.popops_slices import TopKParams as TopKParams
from ipujax.poplar.popops_slices import createSliceableTensor as createSliceableTensor
from ipujax.poplar.popops_slices import dynamicSlice as dynamicSlice
from ipujax.poplar.popops_slices import dynamicUpdate as dynamicUpdate
from ipujax.poplar.popops_slices import encodeOneHot as encodeOneHot
from ipujax.poplar.popops_slices import gather as gather
from ipujax.poplar.popops_slices import multiSlice as multiSlice
from ipujax.poplar.popops_slices import multiUpdateAdd as multiUpdateAdd
from ipujax.poplar.popops_slices import scatter as scatter
from ipujax.poplar.popops_slices import sort as sort
from ipujax.poplar.popops_slices import sortInPlace as sortInPlace
from ipujax.poplar.popops_slices import sortKeyValue as sortKeyValue
from ipujax.poplar.popops_slices import sortKeyValueInPlace as sortKeyValueInPlace
from ipujax.poplar.popops_slices import topK as topK
from ipujax.poplar.popops_slices import topKKeyValue as topKKeyValue
from ipujax.poplar.popops_slices import topKWithPermutation as topKWithPermutation
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor

abs, absInPlace, absWithOutput = FORMS["abs"]
add, addInPlace, addWithOutput = FORMS["add"]
asin, asinInPlace, asinWithOutput = FORMS["asin"]
atan2, atan2InPlace, atan2WithOutput = FORMS["atan2"]
bitwiseAnd, bitwiseAndInPlace, bitwiseAndWithOutput = FORMS["bitwiseAnd"]
bitwiseNot, bitwiseNotInPlace, bitwiseNotWithOutput = FORMS["bitwiseNot"]
bitwiseOr, bitwiseOrInPlace, bitwiseOrWithOutput = FORMS["bitwiseOr"]
bitwiseXnor, bitwiseXnorInPlace, bitwiseXnorWithOutput = FORMS["bitwiseXnor"]
bitwiseXor, bitwiseXorInPlace, bitwiseXorWithOutput = FORMS["bitwiseXor"]
cbrt, cbrtInPlace, cbrtWithOutput = FORMS["cbrt"]
ceil, ceilInPlace, ceilWithOutput = FORMS["ceil"]
clamp, clampInPlace, clampWithOutput = FORMS["clamp"]
cos, cosInPlace, cosWithOutput = FORMS["cos"]
countLeadingZeros, countLeadingZerosInPlace, countLeadingZerosWithOutput = FORMS[
    "countLeadingZeros"
]
div, divInPlace, divWithOutput = FORMS["div"]
eq, eqInPlace, eqWithOutput = FORMS["eq"]
erf, erfInPlace, erfWithOutput = FORMS["erf"]
exp, expInPlace, expWithOutput = FORMS["exp"]
expm1, expm1InPlace, expm1WithOutput = FORMS["expm1"]
floor, floorInPlace, floorWithOutput = FORMS["floor"]
geluErf, geluErfInPlace, geluErfWithOutput = FORMS["geluErf"]
gt, gtInPlace, gtWithOutput = FORMS["gt"]
gteq, gteqInPlace, gteqWithOutput = FORMS["gteq"]
inv, invInPlace, invWithOutput = FORMS["inv"]
invStdDevToVariance, invStdDevToVarianceInPlace, invStdDevToVarianceWithOutput = FORMS[
    "invStdDevToVariance"
]
isFinite, isFiniteInPlace, isFiniteWithOutput = FORMS["isFinite"]
isInf, isInfInPlace, isInfWithOutput = FORMS["isInf"]
isNaN, isNaNInPlace, isNaNWithOutput = FORMS["isNaN"]
log, logInPlace, logWithOutput = FORMS["log"]
log1p, log1pInPlace, log1pWithOutput = FORMS["log1p"]
logicalAnd, logicalAndInPlace, logicalAndWithOutput = FORMS["logicalAnd"]
logicalNot, logicalNotInPlace, logicalNotWithOutput = FORMS["logicalNot"]
logicalOr, logicalOrInPlace, logicalOrWithOutput = FORMS["logicalOr"]
lt, ltInPlace, ltWithOutput = FORMS["lt"]
lteq, lteqInPlace, lteqWithOutput = FORMS["lteq"]
max, maxInPlace, maxWithOutput = FORMS["max"]
min, minInPlace, minWithOutput = FORMS["min"]
mul, mulInPlace, mulWithOutput = FORMS["mul"]
nearbyInt, nearbyIntInPlace, nearbyIntWithOutput = FORMS["nearbyInt"]
neg, negInPlace, negWithOutput = FORMS["neg"]
neq, neqInPlace, neqWithOutput = FORMS["neq"]
popcount, popcountInPlace, popcountWithOutput = FORMS["popcount"]
pow, powInPlace, powWithOutput = FORMS["pow"]
relu, reluInPlace, reluWithOutput = FORMS["relu"]
rem, remInPlace, remWithOutput = FORMS["rem"]
round, roundInPlace, roundWithOutput = FORMS["round"]
rsqrt, rsqrtInPlace, rsqrtWithOutput = FORMS["rsqrt"]
select, selectInPlace, selectWithOutput = FORMS["select"]
shiftLeft, shiftLeftInPlace, shiftLeftWithOutput = FORMS["shiftLeft"]
shiftRight, shiftRightInPlace, shiftRightWithOutput = FORMS["shiftRight"]
shiftRightSignExtend, shiftRightSignExtendInPlace, shiftRightSignExtendWithOutput = FORMS[
    "shiftRightSignExtend"
]
sigmoid, sigmoidInPlace, sigmoidWithOutput = FORMS["sigmoid"]
signum, signumInPlace, signumWithOutput = FORMS["signum"]
sin, sinInPlace, sinWithOutput = FORMS["sin"]
sqrt, sqrtInPlace, sqrtWithOutput = FORMS["sqrt"]
square, squareInPlace, squareWithOutput = FORMS["square"]
sub, subInPlace, subWithOutput = FORMS["sub"]
tan, tanInPlace, tanWithOutput = FORMS["tan"]
tanh, tanhInPlace, tanhWithOutput = FORMS["tanh"]
trunc, truncInPlace, truncWithOutput = FORMS["trunc"]
varianceToInvStdDev, varianceToInvStdDevInPlace, varianceToInvStdDevWithOutput = FORMS[
    "varianceToInvStdDev"
]


@check.guard
def map(
    graph: Graph, expression: expr.Expr, ts: list[Tensor], prog: Sequence, *rest: Any
) -> Tensor:
    """Adds an expression of tensors to a program, as one pass, and returns its tensor."""
    function = _function_of(expression)
    return add_elementwise(graph, prog, read_title("map", rest), function, ts)


@check.guard
def mapInPlace(
    graph: Graph, expression: expr.Expr, ts: list[Tensor], prog: Sequence, *rest: Any
) -> None:
    """Adds an expression of tensors, which is written to the first of them."""
    function, title = _function_of(expression), read_title("map", rest)
    add_elementwise(graph, prog, title, function, ts, in_place=True)


@check.guard
def mapWithOutput(
    graph: Graph,
    expression: expr.Expr,
    ts: list[Tensor],
    out: Tensor,
    prog: Sequence,
    *rest: Any,
) -> None:
    """Adds an expression of tensors, which is written to `out`."""
    function, title = _function_of(expression), read_title("map", rest)
    add_elementwise(graph, prog, title, function, ts, out=out)


def _function_of(expression: Any) -> Any:
    check.require_instance(expression, expr.Expr, "the expression", "an expression of popops.expr")
    return lambda *arrays: expression.evaluate(arrays)
