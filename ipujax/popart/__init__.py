"""PopART: ONNX models on virtual IPUs, run and trained.

The names are those of the original's package `popart`; needs the extra `onnx`.
"""

from __future__ import annotations

from ipujax.doors.onnx import check_installed

check_installed()  # before anything here imports onnx

# ruff: noqa: E402
from typing import Any, NoReturn

from ipujax.ground import MissingAttributeError, suggest_closest_name
from ipujax.ground import PopARTError as PopARTError
from ipujax.popart.builder import Builder as Builder
from ipujax.popart.builder.builder import DEFAULT_OPSETS
from ipujax.popart.data_flow import AnchorReturnType as AnchorReturnType
from ipujax.popart.data_flow import AnchorReturnTypeId as AnchorReturnTypeId
from ipujax.popart.data_flow import DataFlow as DataFlow
from ipujax.popart.debug import DebugContext as DebugContext
from ipujax.popart.debug import DebugInfo as DebugInfo
from ipujax.popart.debug import SourceLocation as SourceLocation
from ipujax.popart.debug import closePoplarDebugInfo as closePoplarDebugInfo
from ipujax.popart.debug import initializePoplarDebugInfo as initializePoplarDebugInfo
from ipujax.popart.exceptions import OutOfMemoryException as OutOfMemoryException
from ipujax.popart.exceptions import popart_exception as popart_exception
from ipujax.popart.exceptions import popart_internal_exception as popart_internal_exception
from ipujax.popart.exceptions import popart_runtime_error as popart_runtime_error
from ipujax.popart.exceptions import (
    poplar_application_runtime_error as poplar_application_runtime_error,
)
from ipujax.popart.exceptions import poplar_exception as poplar_exception
from ipujax.popart.exceptions import (
    poplar_recoverable_runtime_error as poplar_recoverable_runtime_error,
)
from ipujax.popart.exceptions import poplar_runtime_error as poplar_runtime_error
from ipujax.popart.exceptions import poplar_system_runtime_error as poplar_system_runtime_error
from ipujax.popart.exceptions import poplar_unknown_runtime_error as poplar_unknown_runtime_error
from ipujax.popart.exceptions import (
    poplar_unrecoverable_runtime_error as poplar_unrecoverable_runtime_error,
)
from ipujax.popart.exceptions import poplibs_exception as poplibs_exception
from ipujax.popart.graph_transformer import GraphTransformer as GraphTransformer
from ipujax.popart.install import install as install
from ipujax.popart.optimizers import SGD as SGD
from ipujax.popart.optimizers import Adam as Adam
from ipujax.popart.optimizers import AdamMode as AdamMode
from ipujax.popart.optimizers import Adaptive as Adaptive
from ipujax.popart.optimizers import AdaptiveMode as AdaptiveMode
from ipujax.popart.optimizers import ClipNormSettings as ClipNormSettings
from ipujax.popart.optimizers import ConstSGD as ConstSGD
from ipujax.popart.optimizers import Optimizer as Optimizer
from ipujax.popart.optimizers import OptimizerValue as OptimizerValue
from ipujax.popart.optimizers import OptimizerValueMap as OptimizerValueMap
from ipujax.popart.optimizers import SGDAccumulatorAndMomentum as SGDAccumulatorAndMomentum
from ipujax.popart.optimizers import WeightDecayMode as WeightDecayMode
from ipujax.popart.options import AccumulateOuterFragmentSchedule as AccumulateOuterFragmentSchedule
from ipujax.popart.options import AccumulateOuterFragmentSettings as AccumulateOuterFragmentSettings
from ipujax.popart.options import AutodiffSettings as AutodiffSettings
from ipujax.popart.options import AutodiffStitchStrategy as AutodiffStitchStrategy
from ipujax.popart.options import AutomaticLossScalingSettings as AutomaticLossScalingSettings
from ipujax.popart.options import BatchSerializationBatchSchedule as BatchSerializationBatchSchedule
from ipujax.popart.options import BatchSerializationMethod as BatchSerializationMethod
from ipujax.popart.options import BatchSerializationSettings as BatchSerializationSettings
from ipujax.popart.options import (
    BatchSerializationTransformContext as BatchSerializationTransformContext,
)
from ipujax.popart.options import CollectiveOperator as CollectiveOperator
from ipujax.popart.options import ExchangeStrategy as ExchangeStrategy
from ipujax.popart.options import ExecutionPhaseIOSchedule as ExecutionPhaseIOSchedule
from ipujax.popart.options import ExecutionPhaseSchedule as ExecutionPhaseSchedule
from ipujax.popart.options import ExecutionPhaseSettings as ExecutionPhaseSettings
from ipujax.popart.options import ExperimentalSettings as ExperimentalSettings
from ipujax.popart.options import GradientTensorTrackingMethod as GradientTensorTrackingMethod
from ipujax.popart.options import InitType as InitType
from ipujax.popart.options import Instrumentation as Instrumentation
from ipujax.popart.options import IrSerializationFormat as IrSerializationFormat
from ipujax.popart.options import MeanReductionStrategy as MeanReductionStrategy
from ipujax.popart.options import MergeVarUpdateType as MergeVarUpdateType
from ipujax.popart.options import RecomputationType as RecomputationType
from ipujax.popart.options import RecomputeType as RecomputeType
from ipujax.popart.options import ReductionType as ReductionType
from ipujax.popart.options import ReplicatedCollectivesSettings as ReplicatedCollectivesSettings
from ipujax.popart.options import ReplicatedStreamMode as ReplicatedStreamMode
from ipujax.popart.options import ReplicatedTensorSharding as ReplicatedTensorSharding
from ipujax.popart.options import ScatterReduction as ScatterReduction
from ipujax.popart.options import SessionOptions as SessionOptions
from ipujax.popart.options import SubgraphCopyingStrategy as SubgraphCopyingStrategy
from ipujax.popart.options import SyncPattern as SyncPattern
from ipujax.popart.options import SyntheticDataMode as SyntheticDataMode
from ipujax.popart.options import TensorLocation as TensorLocation
from ipujax.popart.options import TensorLocationSettings as TensorLocationSettings
from ipujax.popart.options import TensorRemapType as TensorRemapType
from ipujax.popart.options import TensorStorage as TensorStorage
from ipujax.popart.options import TileSet as TileSet
from ipujax.popart.options import VirtualGraphMode as VirtualGraphMode
from ipujax.popart.patterns import Patterns as Patterns
from ipujax.popart.patterns import PatternsLevel as PatternsLevel
from ipujax.popart.popart_checks import check as check
from ipujax.popart.popart_devices import DeviceConnectionType as DeviceConnectionType
from ipujax.popart.popart_devices import DeviceInfo as DeviceInfo
from ipujax.popart.popart_devices import DeviceManager as DeviceManager
from ipujax.popart.popart_devices import DeviceSelectionCriterion as DeviceSelectionCriterion
from ipujax.popart.popart_devices import DeviceType as DeviceType
from ipujax.popart.popart_log import Logger as Logger
from ipujax.popart.popart_log import getLogger as getLogger
from ipujax.popart.reserved import reservedAccl1Prefix as reservedAccl1Prefix
from ipujax.popart.reserved import reservedAccl2Prefix as reservedAccl2Prefix
from ipujax.popart.reserved import reservedAccl3Prefix as reservedAccl3Prefix
from ipujax.popart.reserved import reservedAcclPrefix as reservedAcclPrefix
from ipujax.popart.reserved import reservedAccumPrefix as reservedAccumPrefix
from ipujax.popart.reserved import reservedDefaultAdamBeta1Prefix as reservedDefaultAdamBeta1Prefix
from ipujax.popart.reserved import reservedDefaultAdamBeta2Prefix as reservedDefaultAdamBeta2Prefix
from ipujax.popart.reserved import reservedDefaultAdamEpsPrefix as reservedDefaultAdamEpsPrefix
from ipujax.popart.reserved import (
    reservedDefaultDampeningScaleFactor1Prefix as reservedDefaultDampeningScaleFactor1Prefix,
)
from ipujax.popart.reserved import (
    reservedDefaultLearningRatePrefix as reservedDefaultLearningRatePrefix,
)
from ipujax.popart.reserved import (
    reservedDefaultLossScalingPrefix as reservedDefaultLossScalingPrefix,
)
from ipujax.popart.reserved import (
    reservedDefaultMaxWeightNormPrefix as reservedDefaultMaxWeightNormPrefix,
)
from ipujax.popart.reserved import (
    reservedDefaultScaledLearningRate0Prefix as reservedDefaultScaledLearningRate0Prefix,
)
from ipujax.popart.reserved import (
    reservedDefaultScaledLearningRate1Prefix as reservedDefaultScaledLearningRate1Prefix,
)
from ipujax.popart.reserved import (
    reservedDefaultScaledMomentum1Prefix as reservedDefaultScaledMomentum1Prefix,
)
from ipujax.popart.reserved import (
    reservedDefaultScaledWeightDecay1Prefix as reservedDefaultScaledWeightDecay1Prefix,
)
from ipujax.popart.reserved import (
    reservedDefaultWeightDecayPrefix as reservedDefaultWeightDecayPrefix,
)
from ipujax.popart.reserved import (
    reservedDefaultWeightDecayScaleFactor0Prefix as reservedDefaultWeightDecayScaleFactor0Prefix,
)
from ipujax.popart.reserved import reservedGradientPrefix as reservedGradientPrefix
from ipujax.popart.reserved import reservedLossScalingPrefix as reservedLossScalingPrefix
from ipujax.popart.reserved import (
    reservedSpecificAdamBeta1Prefix as reservedSpecificAdamBeta1Prefix,
)
from ipujax.popart.reserved import (
    reservedSpecificAdamBeta2Prefix as reservedSpecificAdamBeta2Prefix,
)
from ipujax.popart.reserved import reservedSpecificAdamEpsPrefix as reservedSpecificAdamEpsPrefix
from ipujax.popart.reserved import (
    reservedSpecificDampeningScaleFactor1Prefix as reservedSpecificDampeningScaleFactor1Prefix,
)
from ipujax.popart.reserved import (
    reservedSpecificLearningRatePrefix as reservedSpecificLearningRatePrefix,
)
from ipujax.popart.reserved import (
    reservedSpecificLossScalingPrefix as reservedSpecificLossScalingPrefix,
)
from ipujax.popart.reserved import (
    reservedSpecificMaxWeightNormPrefix as reservedSpecificMaxWeightNormPrefix,
)
from ipujax.popart.reserved import (
    reservedSpecificScaledLearningRate0Prefix as reservedSpecificScaledLearningRate0Prefix,
)
from ipujax.popart.reserved import (
    reservedSpecificScaledLearningRate1Prefix as reservedSpecificScaledLearningRate1Prefix,
)
from ipujax.popart.reserved import (
    reservedSpecificScaledMomentum1Prefix as reservedSpecificScaledMomentum1Prefix,
)
from ipujax.popart.reserved import (
    reservedSpecificScaledWeightDecay1Prefix as reservedSpecificScaledWeightDecay1Prefix,
)
from ipujax.popart.reserved import (
    reservedSpecificWeightDecayPrefix as reservedSpecificWeightDecayPrefix,
)
from ipujax.popart.reserved import (
    reservedSpecificWeightDecayScaleFactor0Prefix as reservedSpecificWeightDecayScaleFactor0Prefix,
)
from ipujax.popart.reserved import reservedStepPrefix as reservedStepPrefix
from ipujax.popart.reserved import reservedUpdatedVarPrefix as reservedUpdatedVarPrefix
from ipujax.popart.session import InferenceSession as InferenceSession
from ipujax.popart.session import TrainingSession as TrainingSession
from ipujax.popart.step_inputs import InputSettings as InputSettings
from ipujax.popart.step_inputs import InputShapeInfo as InputShapeInfo
from ipujax.popart.step_io import PyStepIO as PyStepIO
from ipujax.popart.step_io import PyStepIOCallback as PyStepIOCallback
from ipujax.popart.step_io import PyWeightsIO as PyWeightsIO
from ipujax.popart.supported import OpDefinition as OpDefinition
from ipujax.popart.supported import OperatorIdentifier as OperatorIdentifier
from ipujax.popart.supported import getSupportedOperations as getSupportedOperations
from ipujax.popart.supported import (
    getSupportedOperationsDefinition as getSupportedOperationsDefinition,
)

__all__ = [
    "SGD",
    "AccumulateOuterFragmentSchedule",
    "AccumulateOuterFragmentSettings",
    "Adam",
    "AdamMode",
    "Adaptive",
    "AdaptiveMode",
    "AnchorReturnType",
    "AnchorReturnTypeId",
    "AutodiffSettings",
    "AutodiffStitchStrategy",
    "AutomaticLossScalingSettings",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationSettings",
    "BatchSerializationTransformContext",
    "Builder",
    "ClipNormSettings",
    "CollectiveOperator",
    "CommGroup",
    "CommGroupType",
    "ConstSGD",
    "DataFlow",
    "DataType",
    "DebugContext",
    "DebugInfo",
    "DeviceConnectionType",
    "DeviceInfo",
    "DeviceManager",
    "DeviceSelectionCriterion",
    "DeviceType",
    "ExchangeStrategy",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "ExecutionPhaseSettings",
    "ExperimentalSettings",
    "GradientTensorTrackingMethod",
    "GraphTransformer",
    "InferenceSession",
    "InitType",
    "InputSettings",
    "InputShapeInfo",
    "Instrumentation",
    "IrSerializationFormat",
    "Logger",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "OpDefinition",
    "OperatorIdentifier",
    "Optimizer",
    "OptimizerValue",
    "OptimizerValueMap",
    "OutOfMemoryException",
    "Patterns",
    "PatternsLevel",
    "PopARTError",
    "PyStepIO",
    "PyStepIOCallback",
    "PyWeightsIO",
    "RecomputationType",
    "RecomputeType",
    "ReductionType",
    "ReplicatedCollectivesSettings",
    "ReplicatedStreamMode",
    "ReplicatedTensorSharding",
    "SGDAccumulatorAndMomentum",
    "ScatterReduction",
    "SessionOptions",
    "SourceLocation",
    "SubgraphCopyingStrategy",
    "SyncPattern",
    "SyntheticDataMode",
    "TensorInfo",
    "TensorLocation",
    "TensorLocationSettings",
    "TensorRemapType",
    "TensorStorage",
    "TileSet",
    "TrainingSession",
    "VariableRetrievalMode",
    "VariableSettings",
    "VirtualGraphMode",
    "WeightDecayMode",
    "closePoplarDebugInfo",
    "defaultAiGraphcoreOpset",
    "defaultAiOnnxOpset",
    "getLogger",
    "getSupportedOperations",
    "getSupportedOperationsDefinition",
    "getTensorInfo",
    "getUnsupportedOperations",
    "initializePoplarDebugInfo",
    "install",
    "packageHash",
    "popart_exception",
    "popart_internal_exception",
    "popart_runtime_error",
    "poplar_application_runtime_error",
    "poplar_exception",
    "poplar_recoverable_runtime_error",
    "poplar_runtime_error",
    "poplar_system_runtime_error",
    "poplar_unknown_runtime_error",
    "poplar_unrecoverable_runtime_error",
    "poplibs_exception",
    "reservedAccl1Prefix",
    "reservedAccl2Prefix",
    "reservedAccl3Prefix",
    "reservedAcclPrefix",
    "reservedAccumPrefix",
    "reservedDefaultAdamBeta1Prefix",
    "reservedDefaultAdamBeta2Prefix",
    "reservedDefaultAdamEpsPrefix",
    "reservedDefaultDampeningScaleFactor1Prefix",
    "reservedDefaultLearningRatePrefix",
    "reservedDefaultLossScalingPrefix",
    "reservedDefaultMaxWeightNormPrefix",
    "reservedDefaultScaledLearningRate0Prefix",
    "reservedDefaultScaledLearningRate1Prefix",
    "reservedDefaultScaledMomentum1Prefix",
    "reservedDefaultScaledWeightDecay1Prefix",
    "reservedDefaultWeightDecayPrefix",
    "reservedDefaultWeightDecayScaleFactor0Prefix",
    "reservedGradientPrefix",
    "reservedLossScalingPrefix",
    "reservedSpecificAdamBeta1Prefix",
    "reservedSpecificAdamBeta2Prefix",
    "reservedSpecificAdamEpsPrefix",
    "reservedSpecificDampeningScaleFactor1Prefix",
    "reservedSpecificLearningRatePrefix",
    "reservedSpecificLossScalingPrefix",
    "reservedSpecificMaxWeightNormPrefix",
    "reservedSpecificScaledLearningRate0Prefix",
    "reservedSpecificScaledLearningRate1Prefix",
    "reservedSpecificScaledMomentum1Prefix",
    "reservedSpecificScaledWeightDecay1Prefix",
    "reservedSpecificWeightDecayPrefix",
    "reservedSpecificWeightDecayScaleFactor0Prefix",
    "reservedStepPrefix",
    "reservedUpdatedVarPrefix",
    "versionNumber",
    "versionString",
]


def __dir__() -> list[str]:
    return __all__


from ipujax.popart.popart_variables import CommGroup as CommGroup
from ipujax.popart.popart_variables import CommGroupType as CommGroupType
from ipujax.popart.popart_variables import VariableRetrievalMode as VariableRetrievalMode
from ipujax.popart.popart_variables import VariableSettings as VariableSettings
from ipujax.popart.popart_version import packageHash as packageHash
from ipujax.popart.popart_version import versionNumber as versionNumber
from ipujax.popart.popart_version import versionString as versionString
from ipujax.popart.supported import getUnsupportedOperations as getUnsupportedOperations
from ipujax.popart.tensor_info import DataType as DataType
from ipujax.popart.tensor_info import TensorInfo as TensorInfo

__version__ = ".".join(map(str, versionNumber()))
defaultAiOnnxOpset = DEFAULT_OPSETS["ai.onnx"]
defaultAiGraphcoreOpset = DEFAULT_OPSETS["ai.graphcore"]


@check.guard
def getTensorInfo(array: Any) -> TensorInfo:
    """Returns the data type and the shape of an array."""
    return TensorInfo(array)


def __getattr__(name: str) -> NoReturn:
    raise MissingAttributeError(
        f"popart has no {name!r} here{suggest_closest_name(name, globals())}",
        fix="use a name of dir(popart)",
    )
