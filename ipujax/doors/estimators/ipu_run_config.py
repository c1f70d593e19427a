"""The configuration of estimators: IPUs, steps per device loop, checkpoints and logging."""

from __future__ import annotations

import dataclasses as dc
import math
import os
from typing import Any

from ipujax.ground import (
    Checks,
    Cluster,
    ConfigError,
    ConfigNotImplementedError,
    ConfigTypeError,
    Task,
    read_current_task,
)
from ipujax.strategies import WorkerStrategy
from ipujax.system import IPUConfig, build_logical_devices, log_once

_check = Checks(ConfigTypeError, ConfigError)
_UNSET: Any = None  # becomes what it stands for
_DEFAULT: Any = object()  # of when to save, where None is never
_DEFAULT_SECONDS = 600
_COUNTS = {
    "tf_random_seed": None,
    "save_summary_steps": 0,
    "save_checkpoints_steps": 0,
    "keep_checkpoint_max": 0,
    "log_step_count_steps": 1,
    "experimental_max_worker_delay_secs": 0,
}
"""Options that are integers or None, and the least that each may be."""
_WITHOUT_EFFECT = (
    "session_config", "keep_checkpoint_every_n_hours", "device_fn", "protocol",
    "experimental_max_worker_delay_secs", "session_creation_timeout_secs",
)  # fmt: skip


@_check.guard
@dc.dataclass(frozen=True)
class IPURunConfig:
    """The IPU options of an estimator: replicas, shards, and steps per device loop.

    Attributes:
      iterations_per_loop: mini-batches that a device loop, a "session run", consumes; so much the
        global step grows by it. With gradient accumulation there are fewer weight updates.
      ipu_options: an `IPUConfig`, which the estimator configures; needed for several IPUs.
      compile_summary: whether compiling writes a summary.
      num_replicas: copies of the graph (data parallelism).
      num_shards: IPUs of each copy (model parallelism).
      ordinal: of the device: 0 is `/device:IPU:0`.
      prefetch_depth: of the infeed that the estimator makes; None for the infeed's own.
      autosharding: must be False, as the porting guide (seed 004, listing 4.2) has it.

    Raises:
      ConfigError: (a `ValueError`) replicas x shards that are not the IPUs of this device.
      ConfigNotImplementedError: (a `NotImplementedError`) autosharding.
      ConfigTypeError: (a `TypeError`) arguments of a wrong type.
    """

    iterations_per_loop: int = 1
    ipu_options: IPUConfig | None = None
    compile_summary: bool = False
    num_replicas: int = 1
    num_shards: int = 1
    ordinal: int = 0
    prefetch_depth: int | None = None
    _: dc.KW_ONLY
    autosharding: bool = False

    def __post_init__(self) -> None:
        if _check.require_flag(self.autosharding, "autosharding"):
            raise ConfigNotImplementedError(
                "IPURunConfig has autosharding, which is not there",
                fix="mark the parts of the model by scopes.ipu_shard, and set num_shards",
            )
        for name in ("iterations_per_loop", "num_replicas", "num_shards"):
            _check.require_integer(getattr(self, name), name, at_least=1)
        _check.require_integer(self.ordinal, "ordinal", at_least=0)
        _check.require_flag(self.compile_summary, "compile_summary")
        _check.require_instance(self.ipu_options, IPUConfig, "ipu_options", optional=True)
        if self.prefetch_depth is not None:
            _check.require_integer(self.prefetch_depth, "prefetch_depth", at_least=1)
        needed_ipus = self.num_replicas * self.num_shards
        product = f"num_replicas={self.num_replicas} x num_shards={self.num_shards}"
        if self.ipu_options is None:
            if needed_ipus > 1:
                raise _check.value_error(
                    f"{product} requires more than one device, and ipu_options is None",
                    f"give ipu_options: an IPUConfig with auto_select_ipus = {needed_ipus}",
                )
            return
        devices = build_logical_devices(self.ipu_options)
        if self.ordinal >= len(devices):
            raise _check.value_error(
                f"ordinal is {self.ordinal}, but ipu_options has {len(devices)} device(s)",
                f"give an ordinal below {len(devices)}, or ipu_options more devices",
            )
        ipus = devices[self.ordinal].num_ipus
        if ipus != needed_ipus:
            raise _check.value_error(
                f"{product} takes {needed_ipus} IPUs, but {devices[self.ordinal].name} of "
                f"ipu_options has {ipus}",
                "replicas x shards must be all IPUs of the device: change them, or "
                "auto_select_ipus (or select_ipus)",
            )


@_check.guard
@dc.dataclass(frozen=True, eq=False)
class RunConfig:
    """The options with which an estimator runs, saves and logs.

    Which process of several this one is, `task`, comes from the environment variable `TF_CONFIG`.

    Attributes:
      ipu_run_config: an `IPURunConfig`; None for its defaults.
      master: an address; None for that of `task`. Nothing connects to it.
      model_dir: where checkpoints and event files go; None for the one of `TF_CONFIG`, else the
        estimator's choice.
      tf_random_seed: what the estimator's random keys begin with.
      save_summary_steps: how often summaries are written.
      save_checkpoints_steps: how often checkpoints are, in steps; 0 or None for not by steps.
      save_checkpoints_secs: the same in seconds; 600 if neither is given, and if both are None
        there are no checkpoints, and the estimator remembers its state itself.
      keep_checkpoint_max: how many are kept; 0 or None for all.
      log_step_count_steps: how often the loss and the steps per second are logged.
      train_distribute: a strategy, such as `ipu_multi_worker_strategy.IPUMultiWorkerStrategy()`,
        whose workers train together: each has a process and data of its own.
      eval_distribute: the same, to evaluate: the metrics are those of what all workers see.
      experimental_distribute: must be None: the other two say it.
      task: which process this one is; `TF_CONFIG` says it.

    `session_config`, `keep_checkpoint_every_n_hours`, `device_fn`, `protocol`,
    `experimental_max_worker_delay_secs` and `session_creation_timeout_secs` are there so that
    programs port unchanged, and do nothing, as the log says of those that are set: JAX has no
    sessions and no servers, and checkpoints are kept by their number.

    Raises:
      ConfigError: (a `ValueError`) arguments that contradict one another or `TF_CONFIG`, numbers
        that cannot be.
      ConfigNotImplementedError: (a `NotImplementedError`) `experimental_distribute`.
      ConfigTypeError: (a `TypeError`) arguments of a wrong type.
    """

    ipu_run_config: IPURunConfig = _UNSET
    master: str = _UNSET
    _: dc.KW_ONLY
    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _DEFAULT
    save_checkpoints_secs: float | None = _DEFAULT
    session_config: object = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int | None = 100
    train_distribute: Any = None
    device_fn: object = None
    protocol: str | None = None
    eval_distribute: Any = None
    experimental_distribute: object = None
    experimental_max_worker_delay_secs: int | None = None
    session_creation_timeout_secs: float = 7200
    task: Task = dc.field(default_factory=read_current_task)

    def __post_init__(self) -> None:
        task = _check.require_instance(self.task, Task, "task")
        self._set_field("ipu_run_config", _value_or_default(IPURunConfig(), self.ipu_run_config))
        self._set_field("master", _value_or_default(task.master, self.master))
        self._set_field("model_dir", self._resolve_model_dir(task))
        by_steps = self.save_checkpoints_steps is not _DEFAULT
        by_seconds = self.save_checkpoints_secs is not _DEFAULT
        if not by_steps:
            self._set_field("save_checkpoints_steps", None)
        if not by_seconds:
            self._set_field("save_checkpoints_secs", None if by_steps else _DEFAULT_SECONDS)
        self._check_options()
        defaults = {field.name: field.default for field in dc.fields(self)}
        if idle := [n for n in _WITHOUT_EFFECT if getattr(self, n) != defaults[n]]:
            log_once(
                f"RunConfig has {', '.join(idle)}, which {'do' if len(idle) > 1 else 'does'} "
                "nothing here: there are no sessions and no servers, and checkpoints are kept by "
                "their number (keep_checkpoint_max)"
            )

    def replace(self, **changes: object) -> RunConfig:
        """Returns a copy with other values.

        Setting `save_checkpoints_steps` unsets `save_checkpoints_secs`, and the other way round.

        Raises:
          ConfigError: (a `ValueError`) values that cannot be.
          ConfigTypeError: (a `TypeError`) values of wrong types, and names that there are not.
        """
        names = [field.name for field in dc.fields(self)]
        for name in changes:
            if name not in names:
                raise _check.type_error(
                    f"a RunConfig has no {name!r}", f"use one of {', '.join(names)}"
                )
        when = {"save_checkpoints_steps", "save_checkpoints_secs"}
        if len(when & changes.keys()) == 1:
            changes |= dict.fromkeys(when - changes.keys())
        return dc.replace(self, **changes)

    @property
    def cluster_spec(self) -> Cluster:
        """The addresses of the training cluster, by what each does; empty for an evaluator."""
        return self.task.cluster

    @property
    def task_type(self) -> str:
        """The role of this process: `worker`, `chief`, `ps` or `evaluator`."""
        return self.task.type

    @property
    def task_id(self) -> int:
        """The index of this process among those of its type."""
        return self.task.index

    @property
    def global_id_in_cluster(self) -> int | None:
        """The number of this process among all: the chief is 0; None for an evaluator."""
        return self.task.global_id

    @property
    def is_chief(self) -> bool:
        """True for the process that writes checkpoints: in a strategy, the first worker."""
        strategy: WorkerStrategy | None = self.train_distribute
        return self.task.is_chief if strategy is None else strategy.extended.should_checkpoint

    @property
    def num_ps_replicas(self) -> int:
        """The number of parameter servers."""
        return self.task.parameter_servers

    @property
    def num_worker_replicas(self) -> int:
        """The number of processes that train, with the chief: in a strategy, all workers."""
        strategy: WorkerStrategy | None = self.train_distribute
        return self.task.workers if strategy is None else strategy.num_replicas_in_sync

    @property
    def evaluation_master(self) -> str:
        """The address for evaluation that `TF_CONFIG` has, or ""."""
        return self.task.evaluation_master

    @property
    def evaluator_master(self) -> str:
        """The address for evaluation, under the name in the original's documentation."""
        return self.evaluation_master

    def _set_field(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _resolve_model_dir(self, task: Task) -> str | None:
        if self.model_dir is None:
            return task.model_dir
        directory = os.fspath(_check.require_path(self.model_dir, "model_dir"))
        if not directory:
            raise _check.value_error("model_dir is empty", "give a directory, or None")
        if task.model_dir not in (None, directory):
            raise _check.value_error(
                f"model_dir is {directory!r}, but TF_CONFIG says {task.model_dir!r}",
                "give one of them",
            )
        return directory

    def _check_options(self) -> None:
        _check.require_instance(self.ipu_run_config, IPURunConfig, "ipu_run_config")
        _check.require_text(self.master, "master")
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if value is not None:
                _check.require_integer(value, name, at_least=least)
        if not -(2**63) <= (self.tf_random_seed or 0) < 2**63:
            raise _check.value_error(
                f"tf_random_seed is {self.tf_random_seed}, which has more than 64 bits",
                "give a smaller number",
            )
        if self.save_checkpoints_secs is not None:
            _check_duration(self.save_checkpoints_secs, "save_checkpoints_secs")
            if self.save_checkpoints_steps is not None:
                raise _check.value_error(
                    "save_checkpoints_steps and save_checkpoints_secs are both set", "set one"
                )
        for name in ("keep_checkpoint_every_n_hours", "session_creation_timeout_secs"):
            if not _check_duration(getattr(self, name), name):
                raise _check.value_error(f"{name} is 0", "give more than 0")
        _check.require_function(self.device_fn, "device_fn", optional=True)
        if self.protocol is not None:
            _check.require_one_of(self.protocol, ("grpc", "grpc+verbs"), "protocol")
        for name in ("train_distribute", "eval_distribute"):
            expected = "a strategy, such as IPUMultiWorkerStrategy()"
            _check.require_instance(
                getattr(self, name), WorkerStrategy, name, expected, optional=True
            )
        if self.experimental_distribute is not None:
            raise ConfigNotImplementedError(
                f"experimental_distribute is {self.experimental_distribute!r}, which is not there",
                fix="give train_distribute, eval_distribute or both",
            )


def _value_or_default(default: object, value: object) -> object:
    return default if value is None else value


def _check_duration(value: object, argument: str) -> float:
    """Checks a number of seconds or hours, from 0 on."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _check.wrong_type_error("a number", value, argument)
    if not 0 <= value < math.inf:
        raise _check.value_error(f"{argument} is {value}", "give a finite number, 0 or more")
    return value
