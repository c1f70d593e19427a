"""Every error that ipujax raises on purpose.

All of them derive from `IPUError`; where Python has a built-in that says the same (the original
raised `ValueError` or `TypeError`), they derive from that too, so existing handlers keep working.
Each message says what is wrong, where (the user's own line when there is one) and how to mend it.
"""

from __future__ import annotations

from ipujax.ground import errors as _errors

__all__ = [
    "CallbackError",
    "CheckpointError",
    "CheckpointImportError",
    "CheckpointTypeError",
    "CollectiveError",
    "ComparisonError",
    "ConfigError",
    "ConfigNotImplementedError",
    "ConfigTypeError",
    "ConnectionTypeError",
    "CustomOpError",
    "CustomOpFileError",
    "DeviceError",
    "DeviceMeshError",
    "DistributionError",
    "DistributionNotImplementedError",
    "DistributionTypeError",
    "EnqueueError",
    "EstimatorError",
    "EstimatorTypeError",
    "ExecutableArgumentError",
    "ExecutableError",
    "ExecutableFileError",
    "FailedPreconditionError",
    "FeedError",
    "FlagError",
    "FloatingPointError",
    "FrontendError",
    "FrontendTypeError",
    "IPUError",
    "InternalError",
    "KerasError",
    "KerasFileError",
    "KerasTypeError",
    "LeakedValueError",
    "LoopTypeError",
    "LoweringError",
    "MissingAttributeError",
    "MissingExtraError",
    "MissingPathError",
    "NanLossDuringTrainingError",
    "NotConfiguredError",
    "NotThereYetError",
    "OperatorError",
    "OptimizerError",
    "OptimizerStateError",
    "OptimizerTypeError",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "OutsideCompilationError",
    "PathError",
    "PipelineError",
    "PipelineNotImplementedError",
    "PipelineTypeError",
    "PopARTError",
    "PopARTTypeError",
    "PopTorchConfigFileError",
    "PopTorchError",
    "PopTorchFileError",
    "PopTorchHookError",
    "PopTorchOptionError",
    "PopTorchTypeError",
    "PoplarError",
    "RecoverableError",
    "ReportError",
    "ReportFileError",
    "ReportTypeError",
    "ScopeError",
    "ShardError",
    "TargetError",
    "TileMappingError",
    "TrainingError",
    "TrainingTypeError",
    "UnknownKeyError",
    "UnknownOptionError",
    "UnmodelledError",
    "UnrecoverableError",
    "UnusedOutfeedError",
]


def __dir__() -> list[str]:
    return __all__


CallbackError = _errors.CallbackError
CheckpointError = _errors.CheckpointError
CheckpointImportError = _errors.CheckpointImportError
CheckpointTypeError = _errors.CheckpointTypeError
CollectiveError = _errors.CollectiveError
ComparisonError = _errors.ComparisonError
ConfigError = _errors.ConfigError
ConfigNotImplementedError = _errors.ConfigNotImplementedError
ConfigTypeError = _errors.ConfigTypeError
ConnectionTypeError = _errors.ConnectionTypeError
CustomOpError = _errors.CustomOpError
CustomOpFileError = _errors.CustomOpFileError
DeviceError = _errors.DeviceError
DeviceMeshError = _errors.DeviceMeshError
DistributionError = _errors.DistributionError
DistributionNotImplementedError = _errors.DistributionNotImplementedError
DistributionTypeError = _errors.DistributionTypeError
EnqueueError = _errors.EnqueueError
EstimatorError = _errors.EstimatorError
EstimatorTypeError = _errors.EstimatorTypeError
ExecutableArgumentError = _errors.ExecutableArgumentError
ExecutableError = _errors.ExecutableError
ExecutableFileError = _errors.ExecutableFileError
FailedPreconditionError = _errors.FailedPreconditionError
FeedError = _errors.FeedError
FlagError = _errors.FlagError
FloatingPointError = _errors.FloatingPointError
FrontendError = _errors.FrontendError
FrontendTypeError = _errors.FrontendTypeError
IPUError = _errors.IPUError
InternalError = _errors.InternalError
KerasError = _errors.KerasError
KerasFileError = _errors.KerasFileError
KerasTypeError = _errors.KerasTypeError
LeakedValueError = _errors.LeakedValueError
LoopTypeError = _errors.LoopTypeError
LoweringError = _errors.LoweringError
MissingAttributeError = _errors.MissingAttributeError
MissingExtraError = _errors.MissingExtraError
MissingPathError = _errors.MissingPathError
NanLossDuringTrainingError = _errors.NanLossDuringTrainingError
NotConfiguredError = _errors.NotConfiguredError
NotThereYetError = _errors.NotThereYetError
OperatorError = _errors.OperatorError
OptimizerError = _errors.OptimizerError
OptimizerStateError = _errors.OptimizerStateError
OptimizerTypeError = _errors.OptimizerTypeError
OutOfBoundsError = _errors.OutOfBoundsError
OutOfMemoryError = _errors.OutOfMemoryError
OutOfRangeError = _errors.OutOfRangeError
OutsideCompilationError = _errors.OutsideCompilationError
PathError = _errors.PathError
PipelineError = _errors.PipelineError
PipelineNotImplementedError = _errors.PipelineNotImplementedError
PipelineTypeError = _errors.PipelineTypeError
PopARTError = _errors.PopARTError
PopARTTypeError = _errors.PopARTTypeError
PopTorchConfigFileError = _errors.PopTorchConfigFileError
PopTorchError = _errors.PopTorchError
PopTorchFileError = _errors.PopTorchFileError
PopTorchHookError = _errors.PopTorchHookError
PopTorchOptionError = _errors.PopTorchOptionError
PopTorchTypeError = _errors.PopTorchTypeError
PoplarError = _errors.PoplarError
RecoverableError = _errors.RecoverableError
ReportError = _errors.ReportError
ReportFileError = _errors.ReportFileError
ReportTypeError = _errors.ReportTypeError
ScopeError = _errors.ScopeError
ShardError = _errors.ShardError
TargetError = _errors.TargetError
TileMappingError = _errors.TileMappingError
TrainingError = _errors.TrainingError
TrainingTypeError = _errors.TrainingTypeError
UnknownKeyError = _errors.UnknownKeyError
UnknownOptionError = _errors.UnknownOptionError
UnmodelledError = _errors.UnmodelledError
UnrecoverableError = _errors.UnrecoverableError
UnusedOutfeedError = _errors.UnusedOutfeedError
