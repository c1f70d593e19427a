"""`TF_CONFIG`: which process of a cluster this one is, as TensorFlow's own jobs are told.

    TF_CONFIG='{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]},
                "task": {"type": "worker", "index": 0}}'

The rules are those of TensorFlow's `RunConfig`. Source: run_config.RunConfig.
"""

from __future__ import annotations

import dataclasses as dc
import json
import os
from typing import Any

from ipujax.errors import ConfigError

_VARIABLE = "TF_CONFIG"
_EVALUATOR, _PS, _WORKER = "evaluator", "ps", "worker"
_CHIEFS = ("master", "chief")  # the first one is the older word
_LOCAL = ""

Cluster = dict[str, list[str]]
"""The addresses of a cluster's processes, by what they do."""


@dc.dataclass(frozen=True)
class Task:
    """What this process does in its cluster; by default all of the work, alone.

    Attributes:
      type: `worker`, `chief`, `ps`, `evaluator`, or another one that the cluster has.
      index: which one of that type.
      cluster: without the evaluators, who are in none.
      chief: the type that counts as chief.
      master: the address of this process; "" for one that is alone, or an evaluator.
      evaluation_master: as the variable has it.
      model_dir: as the variable has it.
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
        """Whether it is the one that writes checkpoints."""
        return self.type == self.chief

    @property
    def parameter_servers(self) -> int:
        """How many the cluster has."""
        return len(self.cluster.get(_PS, ()))

    @property
    def workers(self) -> int:
        """How many train, the chief among them; none where an evaluator looks."""
        if self.type == _EVALUATOR:
            return 0
        if not self.cluster:
            return 1
        return len(self.cluster.get(_WORKER, ())) + len(self.cluster[self.chief])

    @property
    def global_id(self) -> int | None:
        """Its number in the cluster: the chief is 0, `ps` come last; None for an evaluator."""
        if self.type == _EVALUATOR:
            return None
        types = sorted(self.cluster, key=lambda each: (each != self.chief, each == _PS, each))
        before = types[: types.index(self.type)] if self.cluster else []
        return sum(len(self.cluster[each]) for each in before) + self.index


def current_task() -> Task:
    """What the environment says of this process.

    Raises:
      ConfigError: a variable that is no JSON, or whose cluster and task do not fit.
    """
    found = _read_variable()
    task = _typed(found.get("task", {}), dict, "`task`", "an object with `type` and `index`")
    cluster = _cluster(found.get("cluster", {}))
    words: dict[str, Any] = {
        name: _typed(found[key], str, f"`{key}`", "a text")
        for name, key in (
            ("evaluation_master", "eval_session_master"),
            ("model_dir", "model_dir"),
            ("master", "session_master"),
        )
        if key in found
    }
    return _in_cluster(cluster, task, words) if cluster else _alone(task, words)


def _read_variable() -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get(_VARIABLE) or "{}")
    except (ValueError, RecursionError) as error:
        raise _wrong(f"is no JSON: {error}") from error
    return _typed(found, dict, "it", "an object with `cluster` and `task`")


def workers_of_cluster() -> tuple[list[str], int] | None:
    """The addresses of the cluster's workers, the chief's first, and which of them this one is.

    The rules are those of TensorFlow's strategies for several workers: without a chief, worker 0 is
    the chief. None where there is no cluster, or this process only evaluates.

    Raises:
      ConfigError: a variable that is no JSON, whose cluster and task do not fit, or with parameter
        servers, which such strategies do not have.
    """
    found = _read_variable()
    task = _typed(found.get("task", {}), dict, "`task`", "an object with `type` and `index`")
    cluster = _cluster(found.get("cluster", {}))
    if not cluster or task.get("type") == _EVALUATOR:
        return None
    if cluster.get(_PS):
        raise _wrong("has 'ps' in its `cluster`, and a strategy for several workers has none")
    chief = next((name for name in _CHIEFS if name in cluster), _WORKER)
    kinds = [kind for kind in dict.fromkeys((chief, _WORKER)) if kind in cluster]
    kind, index = task.get("type"), _index(task.get("index", 0))
    if kind not in kinds:
        raise _wrong(f"has a task of type {kind!r}, but its `cluster` only {', '.join(cluster)}")
    if index >= len(cluster[kind]):
        raise _wrong(f"has a task of index {index}, but only {len(cluster[kind])} of type {kind!r}")
    before = sum(len(cluster[each]) for each in kinds[: kinds.index(kind)])
    return [address for each in kinds for address in cluster[each]], before + index


def _alone(task: dict[str, Any], words: dict[str, Any]) -> Task:
    if task.get("type", _WORKER) != _WORKER:
        raise _wrong(f"has no `cluster`, and so the task's type must be {_WORKER!r}")
    if _index(task.get("index", 0)) != 0:
        raise _wrong("has no `cluster`, and so the task's index must be 0")
    return Task(**words)


def _in_cluster(cluster: Cluster, task: dict[str, Any], words: dict[str, Any]) -> Task:
    chief = next((name for name in _CHIEFS if name in cluster), _CHIEFS[-1])
    if len(cluster.get(chief, ())) != 1:
        raise _wrong(f"must have one {chief!r} in its `cluster`, and no more")
    if chief == _CHIEFS[0] and _CHIEFS[1] in cluster:
        raise _wrong("has a 'master' and a 'chief' in its `cluster`, which are the same")
    for name in ("type", "index"):
        if task.get(name) in (None, ""):
            raise _wrong(f"has a `cluster`, and so its `task` must have a {name!r}")
    kind, index = _typed(task["type"], str, "the task's type", "a text"), _index(task["index"])
    if kind == _EVALUATOR:
        if chief == _CHIEFS[0]:
            raise _wrong("has a 'master' in its `cluster`, which evaluates itself: no evaluators")
        return Task(kind, index, {}, chief, **words | {"master": _LOCAL})
    addresses = cluster.get(kind)
    if addresses is None:
        raise _wrong(f"has a task of type {kind!r}, but its `cluster` only {', '.join(cluster)}")
    if index >= len(addresses):
        raise _wrong(f"has a task of index {index}, but only {len(addresses)} of type {kind!r}")
    is_all = sum(map(len, cluster.values())) == 1
    return Task(
        kind, index, cluster, chief, **{"master": _LOCAL if is_all else addresses[index]} | words
    )


def _cluster(found: Any) -> Cluster:
    wanted = "an object from types to lists of addresses"
    cluster: Cluster = {}
    for kind, addresses in _typed(found, dict, "`cluster`", wanted).items():
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            raise _wrong(f"has {addresses!r} as the addresses of {kind!r}: give a list of texts")
        cluster[kind] = addresses
    return cluster


def _index(value: Any) -> int:
    try:
        index = -1 if isinstance(value, (bool, float)) else int(value)
    except (TypeError, ValueError):
        index = -1
    if index < 0:
        raise _wrong(f"has {value!r} as the task's index: give an integer from 0 on")
    return index


def _typed(value: Any, kind: type, what: str, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong(f"is wrong: {what} is {value!r}, but must be {wanted}")
    return value


def _wrong(what: str) -> ConfigError:
    fix = (
        'write it as {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]}, '
        '"task": {"type": "worker", "index": 0}}, or remove it'
    )
    return ConfigError(f"the environment variable {_VARIABLE} {what}", fix=fix)
