"""`TF_CONFIG`: the cluster of a TensorFlow job, and the task of this process in it.

    TF_CONFIG='{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]},
                "task": {"type": "worker", "index": 0}}'

The rules are those of TensorFlow's `RunConfig`. Source: run_config.RunConfig.
"""

from __future__ import annotations

import dataclasses as dc
import json
import os
from typing import Any

from ipujax.ground.errors import ConfigError
from ipujax.ground.value_types import Json

_VARIABLE = "TF_CONFIG"
_EVALUATOR, _PS, _WORKER = "evaluator", "ps", "worker"
_CHIEFS = ("master", "chief")  # the first one is the older word
_LOCAL = ""

Cluster = dict[str, list[str]]
"""The addresses of a cluster's processes, by the type of their task."""


@dc.dataclass(frozen=True)
class Task:
    """The task of this process in its cluster; by default a worker without others.

    Attributes:
      type: `worker`, `chief`, `ps`, `evaluator`, or another type in the cluster.
      index: its number among those of that type.
      cluster: the cluster, which evaluators are not part of.
      chief: the type that counts as chief.
      master: the address of this process; "" for one that is alone, or an evaluator.
      evaluation_master: the value in the variable.
      model_dir: the value in the variable.
    """

    type: str = _WORKER
    index: int = 0
    cluster: Cluster = dc.field(default_factory=dict[str, list[str]])
    chief: str = _WORKER
    master: str = _LOCAL
    evaluation_master: str = _LOCAL
    model_dir: str | None = None

    @property
    def is_chief(self) -> bool:
        """Returns whether this process is the one that writes checkpoints."""
        return self.type == self.chief

    @property
    def parameter_servers(self) -> int:
        """The number of parameter servers in the cluster."""
        return len(self.cluster.get(_PS, ()))

    @property
    def workers(self) -> int:
        """The number of training processes, the chief included; 0 for an evaluator."""
        if self.type == _EVALUATOR:
            return 0
        if not self.cluster:
            return 1
        return len(self.cluster.get(_WORKER, ())) + len(self.cluster[self.chief])

    @property
    def global_id(self) -> int | None:
        """The task's number in the cluster: chief 0, `ps` last; None for an evaluator."""
        if self.type == _EVALUATOR:
            return None
        types = sorted(
            self.cluster,
            key=lambda task_type: (task_type != self.chief, task_type == _PS, task_type),
        )
        earlier_types = types[: types.index(self.type)] if self.cluster else []
        return sum(len(self.cluster[task_type]) for task_type in earlier_types) + self.index


def read_current_task() -> Task:
    """Reads the task of this process from the environment.

    Raises:
      ConfigError: a variable that is no JSON, or whose cluster and task do not fit.
    """
    tf_config = _read_tf_config()
    task = _check_json_type(
        tf_config.get("task", {}), dict, "`task`", "an object with `type` and `index`"
    )
    cluster = _parse_cluster(tf_config.get("cluster", {}))
    addresses_and_folders: Json = {
        name: _check_json_type(tf_config[key], str, f"`{key}`", "a text")
        for name, key in (
            ("evaluation_master", "eval_session_master"),
            ("model_dir", "model_dir"),
            ("master", "session_master"),
        )
        if key in tf_config
    }
    return (
        _task_in_cluster(cluster, task, addresses_and_folders)
        if cluster
        else _task_without_cluster(task, addresses_and_folders)
    )


def _read_tf_config() -> dict[str, Json]:
    try:
        tf_config = json.loads(os.environ.get(_VARIABLE) or "{}")
    except (ValueError, RecursionError) as error:
        raise _tf_config_error(f"is no JSON: {error}") from error
    return _check_json_type(tf_config, dict, "it", "an object with `cluster` and `task`")


def workers_of_cluster() -> tuple[list[str], int] | None:
    """Returns the addresses of the workers, the chief's first, and the index of this one.

    The rules are those of TensorFlow's strategies for several workers: without a chief, worker 0 is
    the chief. None where there is no cluster, or this process only evaluates.

    Raises:
      ConfigError: a variable that is no JSON, whose cluster and task do not fit, or with parameter
        servers, which such strategies do not have.
    """
    tf_config = _read_tf_config()
    task = _check_json_type(
        tf_config.get("task", {}), dict, "`task`", "an object with `type` and `index`"
    )
    cluster = _parse_cluster(tf_config.get("cluster", {}))
    if not cluster or task.get("type") == _EVALUATOR:
        return None
    if cluster.get(_PS):
        raise _tf_config_error(
            "has 'ps' in its `cluster`, and a strategy for several workers has none"
        )
    chief = next((name for name in _CHIEFS if name in cluster), _WORKER)
    worker_types = [
        task_type for task_type in dict.fromkeys((chief, _WORKER)) if task_type in cluster
    ]
    kind, index = task.get("type"), _parse_task_index(task.get("index", 0))
    if kind not in worker_types:
        raise _tf_config_error(
            f"has a task of type {kind!r}, but its `cluster` only {', '.join(cluster)}"
        )
    if index >= len(cluster[kind]):
        raise _tf_config_error(
            f"has a task of index {index}, but only {len(cluster[kind])} of type {kind!r}"
        )
    earlier_workers = sum(
        len(cluster[worker_type]) for worker_type in worker_types[: worker_types.index(kind)]
    )
    return [
        address for task_type in worker_types for address in cluster[task_type]
    ], earlier_workers + index


def _task_without_cluster(task: dict[str, object], addresses_and_folders: Json) -> Task:
    if task.get("type", _WORKER) != _WORKER:
        raise _tf_config_error(f"has no `cluster`, and so the task's type must be {_WORKER!r}")
    if _parse_task_index(task.get("index", 0)) != 0:
        raise _tf_config_error("has no `cluster`, and so the task's index must be 0")
    return Task(**addresses_and_folders)


def _task_in_cluster(
    cluster: Cluster, task: dict[str, object], addresses_and_folders: Json
) -> Task:
    chief = next((name for name in _CHIEFS if name in cluster), _CHIEFS[-1])
    if len(cluster.get(chief, ())) != 1:
        raise _tf_config_error(f"must have one {chief!r} in its `cluster`, and no more")
    if chief == _CHIEFS[0] and _CHIEFS[1] in cluster:
        raise _tf_config_error("has a 'master' and a 'chief' in its `cluster`, which are the same")
    for name in ("type", "index"):
        if task.get(name) in (None, ""):
            raise _tf_config_error(f"has a `cluster`, and so its `task` must have a {name!r}")
    task_type, index = (
        _check_json_type(task["type"], str, "the task's type", "a text"),
        _parse_task_index(task["index"]),
    )
    if task_type == _EVALUATOR:
        if chief == _CHIEFS[0]:
            raise _tf_config_error(
                "has a 'master' in its `cluster`, which evaluates itself: no evaluators"
            )
        return Task(task_type, index, {}, chief, **addresses_and_folders | {"master": _LOCAL})
    addresses = cluster.get(task_type)
    if addresses is None:
        raise _tf_config_error(
            f"has a task of type {task_type!r}, but its `cluster` only {', '.join(cluster)}"
        )
    if index >= len(addresses):
        raise _tf_config_error(
            f"has a task of index {index}, but only {len(addresses)} of type {task_type!r}"
        )
    is_single_process = sum(map(len, cluster.values())) == 1
    return Task(
        task_type,
        index,
        cluster,
        chief,
        **{"master": _LOCAL if is_single_process else addresses[index]} | addresses_and_folders,
    )


def _parse_cluster(cluster_json: object) -> Cluster:
    requirement = "an object from types to lists of addresses"
    cluster: Cluster = {}
    for task_type, addresses in _check_json_type(
        cluster_json, dict, "`cluster`", requirement
    ).items():
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            raise _tf_config_error(
                f"has {addresses!r} as the addresses of {task_type!r}: give a list of texts"
            )
        cluster[task_type] = addresses
    return cluster


def _parse_task_index(value: Any) -> int:
    try:
        index = -1 if isinstance(value, (bool, float)) else int(value)
    except (TypeError, ValueError):
        index = -1
    if index < 0:
        raise _tf_config_error(f"has {value!r} as the task's index: give an integer from 0 on")
    return index


def _check_json_type(value: object, type_: type, key: str, requirement: str) -> Json:
    if not isinstance(value, type_):
        raise _tf_config_error(f"is wrong: {key} is {value!r}, but must be {requirement}")
    return value


def _tf_config_error(problem: str) -> ConfigError:
    fix = (
        'write it as {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]}, '
        '"task": {"type": "worker", "index": 0}}, or remove it'
    )
    return ConfigError(f"the environment variable {_VARIABLE} {problem}", fix=fix)
