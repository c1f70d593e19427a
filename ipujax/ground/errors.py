"""Every error that ipujax raises on purpose."""

from __future__ import annotations

from typing import Any

from lowering import CollectiveError as CollectiveError
from lowering import DeviceMeshError as DeviceMeshError
from lowering import EnqueueError as EnqueueError
from lowering import InternalError as InternalError
from lowering import IPUError as IPUError
from lowering import LoweringError as LoweringError
from lowering import OutsideCompilationError as OutsideCompilationError
from lowering import ShardError as ShardError
from lowering import TargetError as TargetError


class ConfigError(IPUError, ValueError):
    """A configuration attribute that does not exist, or values that contradict one another."""


class UnknownOptionError(ConfigError, AttributeError):
    """A configuration attribute that does not exist.

    An `AttributeError` too, so that `hasattr`, `copy`, `pickle` and notebooks can probe a
    configuration as they probe any object.
    """


class MissingAttributeError(IPUError, AttributeError):
    """An object was asked for something that it does not have."""


class NotThereYetError(IPUError, ModuleNotFoundError):
    """A module of the original, or one that is planned, that ipujax does not have yet."""


class ConfigTypeError(IPUError, TypeError):
    """A configuration attribute was given a value of a type that it does not take."""


class ConfigNotImplementedError(ConfigError, NotImplementedError):
    """An option of the original that ipujax does not have yet."""


class PathError(IPUError, OSError):
    """A file or folder that cannot be read or written; `errno` and `filename` are as Python's."""

    def __reduce__(self) -> tuple[object, ...]:
        constructor, arguments, state = super().__reduce__()
        return constructor, arguments, state | {"errno": self.errno, "filename": self.filename}


class MissingPathError(PathError, FileNotFoundError):
    """A file or folder that is not there."""


class OutOfBoundsError(IPUError, IndexError):
    """An index that a list or a report does not have."""


class UnknownKeyError(IPUError, KeyError):
    """A name or key under which there is nothing."""


class NotConfiguredError(IPUError, RuntimeError):
    """Something asked for the configuration before there was one."""


class FlagError(IPUError, ValueError):
    """`TF_POPLAR_FLAGS` or `POPLAR_LOG_LEVEL` holds something that is not understood."""


class DeviceError(IPUError, ValueError):
    """A device name, ordinal or id that the virtual system does not have."""


class ConnectionTypeError(IPUError, RuntimeError):
    """The device's connection type forbids what was asked for (`DeviceConnectionType.NEVER`)."""


class ScopeError(IPUError, ValueError):
    """A scope was opened with an impossible argument, or where no such scope may be."""


class LeakedValueError(IPUError, ValueError):
    """A value of one traced function was used after that function had ended."""


class LoopTypeError(IPUError, TypeError):
    """A loop body (or condition) whose arguments or results do not fit the loop variables."""


class FeedError(IPUError, ValueError):
    """A queue was built or used wrongly, or its data set yields unequal elements."""


class UnusedOutfeedError(FeedError):
    """An outfeed was dequeued although nothing can be, or has been, enqueued to it."""


class OutOfRangeError(IPUError, EOFError):
    """A data set ended before the loop that reads it did.

    Attributes:
      requested: how many elements the loop asked for, over all replicas.
      available: how many of them the data set had.
      carried: the loop variables after the last complete iteration, a tuple in the order of the
        loop's inputs; None outside loops.
      infeed: the queue, where there is one; in a copy, or another process, its name.
    """

    def __init__(
        self,
        what: str,
        *,
        requested: int,
        available: int,
        carried: Any = None,
        infeed: Any = None,
        fix: str | None = None,
    ):
        super().__init__(what, fix=fix)
        self.infeed = infeed
        self.requested = requested
        self.available = available
        self.carried = carried

    def __reduce__(self) -> tuple[object, ...]:
        constructor, arguments, state = super().__reduce__()
        infeed = state.get("infeed")
        return constructor, arguments, state | {"infeed": getattr(infeed, "name", infeed)}


class FloatingPointError(IPUError, FloatingPointError):
    """An operation did what `floating_point_behaviour` was asked to catch."""


class PipelineError(IPUError, ValueError):
    """A pipeline whose arguments contradict one another, or whose stages do not fit together."""


class PipelineTypeError(IPUError, TypeError):
    """A pipeline was given an argument of a type that it does not take."""


class PipelineNotImplementedError(IPUError, NotImplementedError):
    """A combination of pipeline arguments that the original did not support either."""


class PlanError(IPUError, ValueError):
    """Costs or limits that no plan can be made with, or a plan that is used for something else.

    Attributes:
      nearest: where no plan fits in memory, the `Plan` that lacks least; None otherwise.
      lacks: the bytes that its fullest IPU lacks; 0 otherwise.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        fix: str | None = None,
        nearest: Any = None,
        lacks: float = 0,
    ):
        super().__init__(what, where=where, fix=fix)
        self.nearest, self.lacks = nearest, lacks


class OptimizerError(IPUError, ValueError):
    """An optimizer used in a place, or given a value, in which it cannot work."""


class OptimizerTypeError(IPUError, TypeError):
    """An optimizer was given an argument of a type that it does not take."""


class TrainingError(IPUError, ValueError):
    """A training or an inference that was given something it cannot work with."""


class TrainingTypeError(IPUError, TypeError):
    """A training or an inference was given an argument of a type that it does not take."""


class CheckpointError(IPUError, ValueError):
    """A checkpoint that is not there, cannot be written or read, or holds something else."""


class CheckpointTypeError(IPUError, TypeError):
    """A checkpoint was asked for, or is to be made, with something of a wrong type."""


class CheckpointImportError(CheckpointError, ImportError):
    """A checkpoint that only an extra can read, which is not installed."""


class EstimatorError(IPUError, ValueError):
    """An estimator, or what its user's functions gave, does not fit together."""


class EstimatorTypeError(IPUError, TypeError):
    """An estimator was given something of a wrong type."""


class NanLossDuringTrainingError(EstimatorError):
    """The loss is not a number any more."""


class FrontendError(IPUError, ValueError):
    """A model of another library that cannot be used, or values that do not fit one."""


class FrontendTypeError(IPUError, TypeError):
    """Something that is no model of the library that it is said to be of."""


class KerasError(FrontendError):
    """A Keras model, or its options, that cannot run here, or Keras itself on another backend."""


class KerasFileError(OSError, KerasError):
    """A file that one of Keras's callbacks cannot write in the scope of an `IPUStrategy`."""

    __init__, __str__ = IPUError.__init__, IPUError.__str__  # those of OSError come first


class KerasTypeError(IPUError, TypeError):
    """Something of a wrong type was given to a Keras model in the scope of an `IPUStrategy`."""


class PopARTError(IPUError, ValueError, RuntimeError):
    """A model, options or data that a session of PopART cannot run as they are.

    The original's was a `RuntimeError` for Python.
    """


class PopARTTypeError(PopARTError, TypeError):
    """Something of a wrong type was given to PopART."""


class PoplarError(PopARTError):
    """Something that the original's PopART left to Poplar to refuse, such as a device's number."""


class PopTorchError(IPUError, ValueError, AssertionError, RuntimeError):
    """A PyTorch module, options or data that PopTorch's wrappers cannot run as they are.

    The original raised its own error, which was a `RuntimeError`, or a `ValueError` or an
    `AssertionError`, for such mistakes.

    Attributes:
      type: of the error, as the original named kinds of them.
    """

    type = "poptorch_py_error"

    @property
    def message(self) -> str:
        """The description of the error."""
        return self.what

    @property
    def location(self) -> str:
        """The user's source line, or '' if it is not known."""
        return self.where


class RecoverableError(PopTorchError):
    """A fault of an IPU after which it can be used again; virtual IPUs have none.

    Attributes:
      recovery_action: what is to be done before: "IPU_RESET", "PARTITION_RESET" or "FULL_RESET".
    """

    type = "poplar_recoverable_runtime_error"

    recovery_action = "FULL_RESET"


class UnrecoverableError(PopTorchError):
    """A fault of an IPU after which it cannot be used any more; virtual IPUs have none."""

    type = "poplar_unrecoverable_runtime_error"


class PopTorchTypeError(PopTorchError, TypeError):
    """Something of a wrong type was given to PopTorch's wrappers."""


class OptimizerStateError(PopTorchError):
    """A state that PopTorch's optimizers cannot load."""


class PopTorchFileError(OSError, PopTorchError):
    """The file of a compiled model that is not there, or holds none."""

    __init__, __str__ = IPUError.__init__, IPUError.__str__  # those of OSError come first


class PopTorchHookError(PopTorchError, RuntimeError):
    """A function that PopTorch's wrappers are to call and cannot."""


class PopTorchOptionError(PopTorchError, AttributeError):
    """An option of PopTorch that does not exist, or that can no longer be set."""


class PopTorchConfigFileError(PopTorchError):
    """A file of PopTorch's options with a line that is none."""


class DistributionError(IPUError, ValueError):
    """Processes that cannot run a program together."""


class DistributionTypeError(IPUError, TypeError):
    """A collective or a strategy of several processes was given what it does not take."""


class DistributionNotImplementedError(IPUError, NotImplementedError):
    """A collective of several processes that is not there."""


class CustomOpError(IPUError, ValueError):
    """A custom operation whose library, function or arguments do not fit."""


class CustomOpFileError(FileNotFoundError, CustomOpError):
    """The library or codelet of a custom operation is not there."""

    __init__, __str__ = IPUError.__init__, IPUError.__str__  # those of OSError come first


class OperatorError(LoweringError):
    """An operator was given arrays or values that it cannot work with."""


class CallbackError(IPUError, RuntimeError):
    """Python code that a program calls on the host raised; its `__cause__` is what that raised."""


class FailedPreconditionError(IPUError, RuntimeError):
    """A program was run without what it needs around it, such as a registered host embedding."""


class TileMappingError(IPUError, ValueError):
    """A value that a program does not have, or that is on several IPUs or none."""


class ComparisonError(IPUError, ValueError):
    """A comparison of nothing, of what is no function, or over schedules that do not exist."""


class ExecutableError(IPUError, ValueError):
    """An executable that cannot be saved, a file that holds none, or what does not fit one."""


class ExecutableArgumentError(ExecutableError, TypeError):
    """Arguments of another structure, shape or dtype than an executable was compiled for."""


class ExecutableFileError(FileNotFoundError, ExecutableError):
    """The file of an executable is not there."""

    __init__, __str__ = IPUError.__init__, IPUError.__str__  # those of OSError come first


class MissingExtraError(IPUError, ImportError):
    """Something was asked for that needs a package which is not installed."""


class ReportError(IPUError, ValueError):
    """A file that holds no report, or one that cannot be read or written as it was asked for."""


class ReportTypeError(IPUError, TypeError):
    """A report was asked for something of a wrong type."""


class ReportFileError(FileNotFoundError, ReportError):
    """The file of a report is not there."""

    __init__, __str__ = IPUError.__init__, IPUError.__str__  # those of OSError come first


class UnmodelledError(IPUError, AttributeError):
    """A name of `pva` for something that was measured, and that no model of an IPU can know."""


class OutOfMemoryError(IPUError, MemoryError):
    """A program that does not fit its IPUs, where `debug.allowOutOfMemory` is "false".

    Attributes:
      report: the program's `Report`: what does not fit, where, and what would help.
    """

    def __init__(self, what: str, *, report: object, fix: str | None = None):
        super().__init__(what, fix=fix)
        self.report = report


# A traceback names the public module of an error.
for _error_class in tuple(vars().values()):
    if getattr(_error_class, "__module__", "") == __name__:
        _error_class.__module__ = "ipujax.errors"
