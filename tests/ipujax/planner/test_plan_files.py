"""Plans in files: what is read is what was written, and a changed file is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipujax import planning
from ipujax.errors import PlanError
from ipujax.planning import Costs, Plan, search


def small_plan() -> Plan:
    costs = Costs(
        [1, 2, 3, 2], [2, 4, 6, 4], parameter_bytes=[8] * 4, activation_bytes=[4, 5, 6, 7]
    )
    return search(costs, ipus=2, micro_batches=(4, 8), memory=100)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan, path = small_plan(), tmp_path / "plan.json"
    plan.save(path)
    assert planning.load(path) == plan


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all entries of a document."""
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield (*path, key)
            yield from paths_in(entry, (*path, key))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    small_plan().save(path)
    return json.loads(path.read_text())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_file_gives_a_plan_or_a_clear_error(
    data: st.DataObject, document: dict[str, Any], tmp_path: Path
) -> None:
    changed = json.loads(json.dumps(document))
    *way, last = data.draw(st.sampled_from([*paths_in(changed)]))
    holder = changed
    for key in way:
        holder = holder[key]
    wrong = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
    holder[last] = data.draw(wrong | st.lists(wrong, max_size=3) | st.floats())
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(changed))
    try:
        plan = planning.load(path)
    except PlanError:
        return
    assert str(plan)
    assert "<svg" in plan._repr_html_()


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\xff", '{"format": "ipujax plan 2"}'])
def test_what_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(PlanError, match="no plan can be read"):
        planning.load(path)


def test_files_that_cannot_be_there(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no plan can be read"):
        planning.load(tmp_path / "none.json")
    with pytest.raises(PlanError, match="cannot be written"):
        small_plan().save(tmp_path / "none" / "plan.json")
