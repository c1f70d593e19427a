"""How estimators run: the original's checks, and what TF_CONFIG says of a process."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from ipujax.config import IPUConfig
from ipujax.errors import ConfigError, ConfigNotImplementedError, ConfigTypeError
from ipujax.ground.tf_config import workers_of_cluster
from ipujax.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
from ipujax.ipu_run_config import IPURunConfig, RunConfig
from ipujax.system import log

CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222", "host2:2222"],
    "worker": ["host3:2222", "host4:2222", "host5:2222"],
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)


def says(monkeypatch: pytest.MonkeyPatch, kind: str, index: Any, cluster: Any = CLUSTER) -> None:
    found = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(found))


def ipus(selection: int | list[int]) -> IPUConfig:
    config = IPUConfig()
    config.auto_select_ipus = selection
    return config


def test_arguments_are_the_originals() -> None:
    names = ["iterations_per_loop", "ipu_options", "compile_summary", "num_replicas", "num_shards"]
    given = dict(inspect.signature(IPURunConfig).parameters)
    assert given.pop("autosharding").kind is inspect.Parameter.KEYWORD_ONLY
    assert list(given) == [*names, "ordinal", "prefetch_depth"]
    assert [p.default for p in given.values()] == [1, None, False, 1, 1, 0, None]
    given = inspect.signature(RunConfig).parameters
    assert list(given)[:2] == ["ipu_run_config", "master"]
    assert [given[name].default for name in ("ipu_run_config", "master")] == [None, None]
    assert all(p.kind is p.KEYWORD_ONLY for p in list(given.values())[2:])


@pytest.mark.fact("run_config.needs_options")
@pytest.mark.parametrize("given", [{"num_replicas": 3}, {"num_shards": 2}])
def test_several_ipus_need_options(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="requires more than one device"):
        IPURunConfig(**given)


@pytest.mark.fact("run_config.mismatch")
@pytest.mark.parametrize(
    ("selection", "given", "has"),
    [
        (3, {}, 3),
        (3, {"num_replicas": 4}, 3),
        ([4, 1], {"num_replicas": 4, "ordinal": 1}, 1),
    ],
)
def test_replicas_and_shards_take_all_ipus(selection: Any, given: Any, has: int) -> None:
    with pytest.raises(ValueError, match=f"IPUs, but /device:IPU:. of ipu_options has {has}"):
        IPURunConfig(ipu_options=ipus(selection), **given)


@pytest.mark.parametrize(
    ("selection", "given"),
    [
        (1, {}),
        ([], {}),
        (4, {"num_replicas": 2, "num_shards": 2}),
        ([1, 4], {"num_shards": 4, "ordinal": 1}),
    ],
)
def test_what_fits_is_taken(selection: Any, given: Any) -> None:
    config = IPURunConfig(ipu_options=ipus(selection), **given)
    assert {name: getattr(config, name) for name in given} == given


def test_selected_ipus_count_too() -> None:
    config = IPUConfig()
    config.select_ipus = [0, 16]  # the second has two
    assert IPURunConfig(ipu_options=config, ordinal=1, num_replicas=2).num_replicas == 2
    with pytest.raises(ConfigError, match="has 1"):
        IPURunConfig(ipu_options=config, num_replicas=2)


@pytest.mark.fact("run_config.ordinal")
def test_the_ordinal_is_one_of_a_device() -> None:
    with pytest.raises(ValueError, match="ordinal is 2, but ipu_options has 2 device"):
        IPURunConfig(ipu_options=ipus([1, 1]), ordinal=2)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"iterations_per_loop": 0}, ConfigError),
        ({"iterations_per_loop": 1.5}, ConfigTypeError),
        ({"num_replicas": -1}, ConfigError),
        ({"num_shards": True}, ConfigTypeError),
        ({"ordinal": -1}, ConfigError),
        ({"ipu_options": 2}, ConfigTypeError),
        ({"compile_summary": 1}, ConfigTypeError),
        ({"prefetch_depth": 0}, ConfigError),
    ],
)
def test_ipu_arguments_are_checked(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(given))):
        IPURunConfig(**given)


def test_graphs_do_not_shard_themselves() -> None:
    assert IPURunConfig(autosharding=False) == IPURunConfig()
    with pytest.raises(NotImplementedError, match="ipu_shard"):
        IPURunConfig(autosharding=True)


def test_a_process_alone_does_all() -> None:
    config = RunConfig()
    assert config.ipu_run_config == IPURunConfig()
    assert (config.master, config.evaluation_master, config.cluster_spec) == ("", "", {})
    assert (config.task_type, config.task_id, config.global_id_in_cluster) == ("worker", 0, 0)
    assert (config.num_ps_replicas, config.num_worker_replicas, config.is_chief) == (0, 1, True)
    assert (config.model_dir, config.tf_random_seed, config.keep_checkpoint_max) == (None, None, 5)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (None, 600)
    assert (config.log_step_count_steps, config.save_summary_steps) == (100, 100)


def test_a_worker_of_the_seeds_example(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, "worker", 1)
    config = RunConfig()
    assert config.master == "host4:2222"
    assert config.task_id == 1
    assert config.num_ps_replicas == 2
    assert config.num_worker_replicas == 4
    assert config.cluster_spec == CLUSTER
    assert config.task_type == "worker"
    assert not config.is_chief
    assert config.global_id_in_cluster == 2


def test_the_chief_of_the_seeds_example(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, "chief", 0)
    config = RunConfig()
    assert config.master == "host0:2222"
    assert config.task_id == 0
    assert config.num_ps_replicas == 2
    assert config.num_worker_replicas == 4
    assert config.cluster_spec == CLUSTER
    assert config.task_type == "chief"
    assert config.is_chief
    assert config.global_id_in_cluster == 0


def test_the_evaluator_of_the_seeds_example(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, "evaluator", 0)
    config = RunConfig()
    assert config.master == ""
    assert config.evaluator_master == ""
    assert config.task_id == 0
    assert config.num_ps_replicas == 0
    assert config.num_worker_replicas == 0
    assert config.cluster_spec == {}
    assert config.task_type == "evaluator"
    assert not config.is_chief
    assert config.global_id_in_cluster is None


def test_parameter_servers_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, "ps", 1)
    assert RunConfig().global_id_in_cluster == 5
    says(monkeypatch, "worker", 0, {"master": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]})
    config = RunConfig()
    assert (config.master, config.global_id_in_cluster, config.is_chief) == ("b:1", 1, False)
    says(monkeypatch, "chief", 0, {"chief": ["a:1"]})
    assert RunConfig().master == ""  # a cluster of one is none


def test_words_of_the_environment_come_second(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"session_master": "a", "eval_session_master": "b", "model_dir": "out"}
    monkeypatch.setenv("TF_CONFIG", json.dumps(found))
    config = RunConfig()
    assert (config.master, config.evaluation_master, config.model_dir) == ("a", "b", "out")
    assert RunConfig(master="", model_dir=Path("out")).master == ""
    with pytest.raises(ConfigError, match="model_dir is 'other', but TF_CONFIG says 'out'"):
        RunConfig(model_dir="other")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is no JSON"),
        ("[]", "must be an object"),
        ('{"task": 1}', "`task` is 1"),
        ('{"task": {"type": "chief"}}', "the task's type must be 'worker'"),
        ('{"task": {"index": 1}}', "the task's index must be 0"),
        ('{"cluster": []}', "`cluster` is"),
        ('{"cluster": {"worker": "a"}}', "the addresses of 'worker'"),
        ('{"cluster": {"worker": ["a"]}}', "must have one 'chief'"),
        ('{"cluster": {"chief": ["a", "b"]}}', "must have one 'chief'"),
        ('{"cluster": {"chief": ["a"]}}', "must have a 'type'"),
        ('{"cluster": {"chief": ["a"]}, "task": {"type": "chief"}}', "must have a 'index'"),
        ('{"cluster": {"chief": ["a"]}, "task": {"type": "ps", "index": 0}}', "of type 'ps'"),
        ('{"cluster": {"chief": ["a"]}, "task": {"type": "chief", "index": 1}}', "of index 1"),
        ('{"cluster": {"chief": ["a"]}, "task": {"type": "chief", "index": -1}}', "has -1"),
        ('{"cluster": {"chief": ["a"]}, "task": {"type": "chief", "index": "x"}}', "has 'x'"),
        ('{"cluster": {"chief": ["a"], "master": ["b"]}}', "are the same"),
        ('{"model_dir": 1}', "`model_dir` is 1"),
    ],
)
def test_what_the_environment_says_must_fit(
    text: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ConfigError, match=what) as caught:
        RunConfig()
    assert str(caught.value).startswith("the environment variable TF_CONFIG ")


def test_a_strategy_says_who_is_chief() -> None:
    strategy = IPUMultiWorkerStrategy()
    for config in (RunConfig(), RunConfig(train_distribute=strategy, eval_distribute=strategy)):
        assert config.is_chief
        assert config.num_worker_replicas == 1


@pytest.mark.parametrize("name", ["train_distribute", "eval_distribute"])
def test_what_is_no_strategy_is_refused(name: str) -> None:
    with pytest.raises(ConfigTypeError, match=f"{name} is .* must be a strategy"):
        RunConfig(**{name: object()})


def test_strategies_are_given_by_their_names() -> None:
    with pytest.raises(ConfigNotImplementedError, match="experimental_distribute is") as caught:
        RunConfig(experimental_distribute=IPUMultiWorkerStrategy())
    assert isinstance(caught.value, (NotImplementedError, ValueError))


def test_checkpoints_are_by_steps_or_by_seconds() -> None:
    def when(config: RunConfig) -> tuple[Any, Any]:
        return config.save_checkpoints_steps, config.save_checkpoints_secs

    assert when(RunConfig(save_checkpoints_steps=10)) == (10, None)
    assert when(RunConfig(save_checkpoints_secs=10)) == (None, 10)
    assert when(RunConfig(save_checkpoints_steps=None)) == (None, None)
    assert when(RunConfig(save_checkpoints_steps=None, save_checkpoints_secs=None)) == (None, None)
    assert when(RunConfig().replace(save_checkpoints_steps=10)) == (10, None)
    assert when(RunConfig(save_checkpoints_steps=1).replace(save_checkpoints_secs=2)) == (None, 2)
    assert when(RunConfig(save_checkpoints_steps=1).replace(model_dir="out")) == (1, None)
    both = {"save_checkpoints_steps": 1, "save_checkpoints_secs": 2}
    for make in (RunConfig, RunConfig().replace):
        with pytest.raises(ValueError, match="are both set"):
            make(**both)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"ipu_run_config": 1}, ConfigTypeError),
        ({"master": 1}, ConfigTypeError),
        ({"model_dir": ""}, ConfigError),
        ({"model_dir": 1}, ConfigTypeError),
        ({"tf_random_seed": "x"}, ConfigTypeError),
        ({"save_summary_steps": -1}, ConfigError),
        ({"save_checkpoints_steps": -1}, ConfigError),
        ({"save_checkpoints_secs": -1}, ConfigError),
        ({"save_checkpoints_secs": "x"}, ConfigTypeError),
        ({"keep_checkpoint_max": -1}, ConfigError),
        ({"keep_checkpoint_every_n_hours": 0}, ConfigError),
        ({"log_step_count_steps": 0}, ConfigError),
        ({"device_fn": 1}, ConfigTypeError),
        ({"protocol": "http"}, ConfigError),
        ({"experimental_max_worker_delay_secs": 1.5}, ConfigTypeError),
        ({"session_creation_timeout_secs": 0}, ConfigError),
        ({"task": 1}, ConfigTypeError),
    ],
)
def test_arguments_are_checked(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(given))):
        RunConfig(**given)


def test_a_copy_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, "worker", 1)
    config = RunConfig(IPURunConfig(2), model_dir="out")
    monkeypatch.delenv("TF_CONFIG")
    other = config.replace(model_dir="other", log_step_count_steps=7)
    assert (other.model_dir, other.log_step_count_steps) == ("other", 7)
    assert (other.ipu_run_config, other.master) == (IPURunConfig(2), "host4:2222")
    assert (config.model_dir, config.log_step_count_steps) == ("out", 100)
    with pytest.raises(ConfigTypeError, match="a RunConfig has no 'steps'"):
        config.replace(steps=1)
    for again in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert (again.model_dir, again.task) == ("out", config.task)


def test_what_does_nothing_is_documented_by_name() -> None:
    told = RunConfig.__doc__ or ""
    for name in inspect.signature(RunConfig).parameters:
        assert f"{name}:" in told or f"`{name}`" in told


WORKERS = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
CHIEF = {"chief": ["c:3"], "worker": ["a:1", "b:2"]}


@pytest.mark.parametrize(
    ("found", "workers"),
    [
        ({}, None),
        (WORKERS, (["a:1", "b:2"], 1)),
        ({"cluster": CHIEF, "task": {"type": "worker", "index": 0}}, (["c:3", "a:1", "b:2"], 1)),
        ({"cluster": CHIEF, "task": {"type": "chief"}}, (["c:3", "a:1", "b:2"], 0)),
        ({"cluster": CHIEF, "task": {"type": "evaluator", "index": 0}}, None),
    ],
)
def test_the_workers_of_a_strategy(
    found: Any, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(found))
    assert workers_of_cluster() == workers


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "must be an object"),
        (json.dumps(WORKERS | {"task": {"type": "worker", "index": 2}}), "only 2 of type"),
        (json.dumps(WORKERS | {"task": {"type": "chief", "index": 0}}), "of type 'chief', but"),
        (json.dumps(WORKERS | {"task": {}}), "a task of type None"),
        (json.dumps({"cluster": CHIEF | {"ps": ["d:4"]}, "task": {"type": "chief"}}), "has 'ps'"),
    ],
)
def test_a_cluster_in_which_no_strategy_trains(
    text: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ConfigError, match=wrong):
        IPUMultiWorkerStrategy()


def test_fields_without_effect_say_so(caplog: pytest.LogCaptureFixture) -> None:
    log.log_once.cache_clear()  # of the tests before
    RunConfig(keep_checkpoint_max=3, save_summary_steps=5)
    assert not caplog.text
    for _ in range(2):
        RunConfig(protocol="grpc", session_creation_timeout_secs=61)
    assert caplog.text.count("protocol, session_creation_timeout_secs, which do nothing") == 1
    names = {
        "session_config": {"allow_growth": True},
        "keep_checkpoint_every_n_hours": 2,
        "device_fn": len,
        "experimental_max_worker_delay_secs": 3,
    }
    for name, value in names.items():
        RunConfig(**{name: value})
        assert f"RunConfig has {name}, which does nothing here" in caplog.text
