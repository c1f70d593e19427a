"""`poptorch.Options`: how a wrapped model is compiled and run.

Options are set by methods that give the options back, and read as attributes. Each says what it
does here; where that is nothing, it says why.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from typing import Any, Self

import torch

from ipujax.ground import Keywords, PopTorchConfigFileError, files, get_joined_instance
from ipujax.poptorch import enums
from ipujax.poptorch.enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    OutputMode,
    SyncPattern,
)
from ipujax.poptorch.options.groups import (
    DistributedOptions,
    JitOptions,
    PrecisionOptions,
    TrainingOptions,
)
from ipujax.poptorch.options.host_options import HostOptions
from ipujax.poptorch.options.locations import TensorLocationOptions
from ipujax.poptorch.options.option_calls import find_option_method, run_option_call
from ipujax.poptorch.options.plan_choices import read_plan_choices
from ipujax.poptorch.options.popart_options import PopartOptions
from ipujax.poptorch.options.switches import check_switches
from ipujax.poptorch.options.system import SystemOptions
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger
from ipujax.poptorch.strategies import PipelinedExecution

_MOST_FILE_BYTES = 2**20  # of a file with a call on each line


@check.guard
class Options(SystemOptions, HostOptions):
    """The settings of how a wrapped model is compiled and run, and how a `DataLoader` batches.

    A model or a data loader that has taken the options fixes them: setting one afterwards is an
    error, but a `clone()` can be changed. `POPTORCH_DEFAULT_OPTIONS` may hold a JSON object of
    options that are set at first, and `POPTORCH_CACHE_DIR` the folder of compiled programs.

    Attributes:
      device_iterations: the number of times that a call runs the model, each time on new data.
      replication_factor: the number of replicas in this process; by default those that `ipurun`
        gave it, or one.
      input_group_size, input_cgt: the size and the kind of groups that get the same input.
      broadcast_buffers: whether all replicas have the same buffers.
      output_mode, output_return_period: the choice of iterations whose outputs are returned.
      anchored_tensors: by the user's name, a list of the tensor's name, whether the outputs' mode
        holds for it, else its own mode, and its period.
      random_seed: the seed of random operators; absent until it is set (see `exists`).
    """

    device_iterations: int
    replication_factor: int
    input_group_size: int
    input_cgt: CommGroupType
    broadcast_buffers: bool
    output_mode: OutputMode
    output_return_period: int
    anchored_tensors: dict[str, list[Any]]
    random_seed: int

    def __init__(self) -> None:
        self._jit = JitOptions()
        self._popart = PopartOptions()
        self._precision = PrecisionOptions(self._popart)
        self._training = TrainingOptions(self._popart)
        self._distributed = DistributedOptions()
        self._tensor_locations = TensorLocationOptions()
        self._execution_strategy = PipelinedExecution()
        self._auto_plan: Keywords | None = None
        self._set_host_defaults()
        super().__init__(
            replication_factor=1
            if (local_instance := get_joined_instance()) is None
            else local_instance.local_replicas,
            input_group_size=1,
            input_cgt=CommGroupType.Consecutive,
            broadcast_buffers=True,
            device_iterations=1,
            log_dir=".",
            max_repeat_logs=4,
            auto_round_num_ipus=False,
            anchored_tensors={},
            output_mode=OutputMode.Default,
            output_return_period=1,
            connection_type=ConnectionType.Always,
            sync_pattern=SyncPattern.Full,
            available_memory_proportion={},
        )
        if path := os.environ.get("POPTORCH_CACHE_DIR", ""):
            logger.info("POPTORCH_CACHE_DIR is set: setting cache path to %s", path)
            self.enableExecutableCaching(path)
        self.from_json(os.environ.get("POPTORCH_DEFAULT_OPTIONS", "{}"))

    @property
    def Training(self) -> TrainingOptions:
        """The options that only a training model reads."""
        return self._training

    @property
    def Precision(self) -> PrecisionOptions:
        """The options of rounding, and of which numbers are errors."""
        return self._precision

    @property
    def Distributed(self) -> DistributedOptions:
        """The options for this process's part in a run of several processes."""
        return self._distributed

    @property
    def TensorLocations(self) -> TensorLocationOptions:
        """The options of where tensors are stored."""
        return self._tensor_locations

    @property
    def Jit(self) -> JitOptions:
        """The options from when PopTorch traced models by TorchScript."""
        return self._jit

    @property
    def _Popart(self) -> PopartOptions:
        return self._popart

    def deviceIterations(self, device_iterations: int) -> Self:
        """Sets how many times one call runs the model on the device, each time on new data."""
        number = check.require_integer(device_iterations, "deviceIterations", at_least=1)
        self.set(device_iterations=number)
        return self

    def replicationFactor(self, replication_factor: int) -> Self:
        """Sets how many replicas of the model run in this process, each on its own data.

        Where several instances train together (see `ipurun`), each instance has this many.
        """
        number = check.require_integer(replication_factor, "replicationFactor", at_least=1)
        self.set(replication_factor=number)
        return self

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: CommGroupType) -> Self:
        """Sets groups of replicas that get the same input.

        Args:
          input_group_size: replicas of one group; it divides the replication factor, which is to be
            set before.
          input_group_type: which replicas make a group.

        Raises:
          Error: the replicas do not divide into such groups.
        """
        size = check.require_integer(input_group_size, "input_group_size", at_least=1)
        check.require_instance(input_group_type, CommGroupType, "input_group_type")
        if input_group_type is CommGroupType.All:
            raise check.value_error(
                "input_group_type cannot be All", "give Consecutive or Orthogonal"
            )
        if input_group_type is CommGroupType.NoGrouping:
            size, input_group_type = 1, CommGroupType.Consecutive
        if self.replication_factor % size:
            raise check.value_error(
                f"input_group_size {size} must be a factor of replication_factor "
                f"{self.replication_factor}",
                "call replicationFactor before, with a multiple",
            )
        self.set(input_group_size=size, input_cgt=input_group_type)
        return self

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Self:
        """Sets whether all replicas have the same buffers, or each its own."""
        self.set(broadcast_buffers=check.require_flag(broadcast_buffers, "broadcastBuffers"))
        return self

    def setExecutionStrategy(self, strategy: PipelinedExecution) -> Self:
        """Sets how the model's blocks become stages on IPUs.

        Raises:
          Error: `strategy` is no execution strategy.
        """
        self.checkIsFrozen()
        check.require_instance(strategy, PipelinedExecution, "strategy", "an execution strategy")
        self._execution_strategy = strategy
        return self

    def autoPlan(self, **choices: Any) -> Self:
        """Sets what the plan of `PipelinedExecution(AutoStage.Auto)` may be chosen from.

        A plan cuts the model between its operators, and says where each stage runs, and by which
        schedule. It is made when the model is compiled, for the micro-batches of a weight update
        (`Training.gradientAccumulation`) and the replicas (`replicationFactor`).

        Args:
          choices: keywords of `ipu.plan`: `ipus`, the IPUs of all replicas together, which may be
            left out where the system is configured; `schedules`, `recompute`, `offload`, `costs`
            ("model" or "measured"), `memory`, `objective`, `budget_seconds`; `consider`, whose cut
            points count the segments that a logged plan has; `micro_batches` and `replicas`, which
            must be those of the options.

        Raises:
          Error: a keyword that `ipu.plan` does not have, or that PopTorch knows by itself; or a
            value that no plan can be made with.
        """
        self.checkIsFrozen()
        self._auto_plan = read_plan_choices(choices)
        return self

    def outputMode(self, output_mode: OutputMode, output_return_period: int | None = None) -> Self:
        """Sets which iterations' outputs a call returns.

        Args:
          output_mode: all of them, their sum, the last, or every so many.
          output_return_period: the period of `OutputMode.EveryN`.

        Raises:
          Error: `output_mode` is no output mode, or needs a period that is not given.
        """
        check.require_instance(output_mode, OutputMode, "output_mode", "a poptorch.OutputMode")
        period = _check_return_period(output_mode, output_return_period)
        if output_return_period and output_mode is not OutputMode.EveryN:
            logger.info("output_return_period is for EveryN: %s ignores it", output_mode)
        self.set(output_mode=output_mode, output_return_period=period)
        return self

    def defaultOutputMode(self) -> bool:
        """Returns whether no output mode has been chosen."""
        return self.output_mode == OutputMode.Default

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: OutputMode | None = None,
        output_return_period: int | None = 1,
    ) -> Self:
        """Keeps a value of the model, for `getAnchoredTensor(short_name)` after a call.

        Args:
          short_name: the user's name of the anchor.
          long_name: the value's own name, as in "Gradient___model.layer.weight".
          output_mode: the choice of iterations; None for the mode of the outputs.
          output_return_period: the period of `OutputMode.EveryN`.
        """
        self.checkIsFrozen()
        names = (
            check.require_text(short_name, "short_name"),
            check.require_text(long_name, "long_name"),
        )
        check.require_instance(output_mode, OutputMode, "output_mode", optional=True)
        period = _check_return_period(output_mode, output_return_period)
        self.anchored_tensors[names[0]] = [names[1], output_mode is None, output_mode, period]
        return self

    def randomSeed(self, random_seed: int) -> Self:
        """Sets the seed of the model's random operators, and of `torch`, which shuffles data."""
        seed = check.require_integer(random_seed, "random_seed")
        self.createOrSet(random_seed=seed)
        torch.manual_seed(seed)
        return self

    def from_json(self, string: str) -> Self:
        """Sets options from JSON: `{"deviceIterations": 2, "Precision.method": ["a", 1]}`.

        A list holds several arguments, and "OutputMode.All" stands for a choice.

        Raises:
          Error: the text is no JSON object, or names an unknown option.
        """
        try:
            entries = json.loads(string)
        except (json.JSONDecodeError, RecursionError) as error:
            raise check.value_error(f"the options are no valid JSON: {error}: {string!r}") from None
        for name, value in check.require_instance(
            entries, dict, "JSON options", "an object"
        ).items():
            method: Any = find_option_method(self, name.split("."))
            if method is None:
                raise check.value_error(
                    f"there is no option {name!r:.100}", "name a method of Options"
                )
            arguments = value if isinstance(value, list) else [value]
            method(*map(_parse_enum_member, arguments))
        return self

    def loadFromFile(self, filepath: str, *, literals_only: bool = False) -> Self:
        """Sets options from a file with a call on each line, as in `deviceIterations(4)`.

        Lines that are empty or begin with # are passed over. The name `poptorch` may be used.

        The lines are run as Python, as in the original: such a file can do whatever you can. For a
        file that you do not trust, say `literals_only=True`.

        Args:
          filepath: the file.
          literals_only: run no Python. Each line must be a call of a method of the options, or of
            one of their groups, with numbers, texts, lists, dictionaries and PopTorch's enums.

        Raises:
          Error: with `literals_only`, a line is something else.
          poptorch.options.ConfigFileError: a line is no Python, or what is there is no text file.
        """
        poptorch = sys.modules["ipujax.poptorch"]  # whose names the file's lines use

        check.require_path(filepath, "filepath")
        lines = _read_option_lines(filepath)
        if check.require_flag(literals_only, "literals_only"):
            for line_number, line in enumerate(map(str.strip, lines), 1):
                if line and not line.startswith("#"):
                    run_option_call(self, line, f"{filepath}:{line_number}")
            return self
        calls = [
            _compile_option_line(line.strip(), number, filepath)
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.strip().startswith("#")
        ]
        for call in calls:
            exec(call, {}, {"poptorch": poptorch, "options": self})
        return self

    def toDict(self) -> Keywords:
        """Returns all options that are set, by name, without the groups' names.

        Raises:
          Error: no output mode has been chosen.
        """
        if self.defaultOutputMode():
            raise check.value_error(
                "An output mode must be picked before serialisation",
                "call outputMode(...); a wrapped model's own options have one",
            )
        values = self._execution_strategy.backendOptions() | self._popart.options
        for group in (self, self._training, self._distributed, self._tensor_locations):
            values = group.update(values)
        return values

    def clone(self) -> Self:
        """Returns a copy that can be changed, even of options that are frozen."""
        return copy.deepcopy(self)

    def _freeze(self) -> None:
        check_switches(self._popart.options)
        strategy = self._execution_strategy
        if self._auto_plan is not None and strategy.auto_stage is not AutoStage.Auto:
            raise check.value_error(
                f"autoPlan was called, and the execution strategy is {strategy}, which is not "
                "planned",
                "say setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.Auto))",
            )
        super()._freeze()

    def __repr__(self) -> str:
        groups = ("Distributed", "Jit", "Precision", "TensorLocations", "Training", "_Popart")
        group_texts = ", ".join(f"{name}={getattr(self, name)!r}" for name in groups)
        return f"{super().__repr__()[:-1]}, {group_texts})"


def _check_return_period(mode: OutputMode | None, period: int | None) -> int:
    """Returns the return period that an output mode uses, checked."""
    if mode is not OutputMode.EveryN:
        return 1
    if period is None:
        raise check.value_error("EveryN needs output_return_period, a positive integer")
    return check.require_integer(period, "output_return_period", at_least=1)


def _parse_enum_member(value: object) -> Any:
    """Returns the enum member that a text like "OutputMode.All" names; other values unchanged."""
    kind, _, name = value.partition(".") if isinstance(value, str) else ("", "", "")
    return getattr(getattr(enums, kind, None), name, value) if kind and name else value


def _compile_option_line(call: str, line_number: int, path: Any) -> Any:
    try:
        return compile(f"options.{call}", str(path), "exec")
    except SyntaxError as error:
        raise PopTorchConfigFileError(
            f"SyntaxError at line {line_number} of {os.path.basename(path)}: {error.msg}\n> {call}",
            fix="write a method of poptorch.Options and its arguments, as in deviceIterations(4)",
        ) from None


def _read_option_lines(path: str) -> list[str]:
    try:
        return files.read_bytes(path, _MOST_FILE_BYTES).decode("utf-8").splitlines()
    except ValueError as error:  # a pipe, a device, a file that is too long, or no text
        raise PopTorchConfigFileError(
            f"{path} {error}" if isinstance(error, files.UnfitFileError) else f"{path}: {error}",
            fix="give a text file with a call of poptorch.Options on each line",
        ) from None
