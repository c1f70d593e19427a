"""Declaring options: types, errors and suggestions, on a small configuration."""

from __future__ import annotations

import logging
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ipujax.errors import ConfigError
from ipujax.system import ConfigNode, category, copy_config, option
from ipujax.system.config_schema import is_instance, type_name

INTS = "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]"


def get(config: ConfigNode, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def assign(config: ConfigNode, name: str, value: object) -> None:
    parent, _, last = name.rpartition(".")
    setattr(get(config, parent) if parent else config, last, value)


class Inner(ConfigNode):
    """A category within a category."""

    deep: int = option(1, "Deep.")
    gone: int = option(1, "Gone.", deprecated="use deep")


class Nested1(ConfigNode):
    """A category."""

    attr1: int = option(1, "An option.")
    inner: Inner = category()


class Old(ConfigNode):
    """A deprecated category."""

    inner: Inner = category()
    own: int = option(0, "Of its own.")


class Schema(ConfigNode):
    """A small configuration."""

    nested1: Nested1 = category()
    old: Old = category(deprecated="old is old")
    boxes: tuple[list[float | tuple[str]], ...] = option((), "Containers in containers.")
    table: dict[str, int] = option({}, "A table.")


@pytest.mark.fact("config.category_assign")
@pytest.mark.parametrize("name", ["nested1", "nested1.inner"])
def test_a_category_cannot_be_assigned_to(name: str):
    config = Schema()
    with pytest.raises(ConfigError, match=f"'{name}' is a category and cannot be assigned to"):
        assign(config, name, 3)
    assert config == Schema()


@pytest.mark.fact("config.wrong_type_bool_for_int")
def test_a_bool_is_no_int():
    config = Schema()
    with pytest.raises(TypeError, match=r"'nested1\.attr1' was given True.*of type int"):
        config.nested1.attr1 = True
    assert config.nested1.attr1 == 1


@pytest.mark.fact("config.nested_tuple_types")
@pytest.mark.parametrize("value", [([1.0],), ([1.0, 2.0, ("t",)],), ([5.0], [("t2",)])])
def test_containers_are_checked_element_by_element(value: Any):
    config = Schema()
    config.boxes = value
    assert config.boxes == value


@pytest.mark.fact("config.nested_tuple_types")
@pytest.mark.parametrize("value", [True, ([True],), ([1.0], ["t"]), ([1.0], [("t",), 1])])
def test_containers_with_a_wrong_element_are_refused(value: Any):
    with pytest.raises(TypeError, match="'boxes'"):
        Schema().boxes = value


@pytest.mark.fact("config.unknown_attr_suggest")
@pytest.mark.parametrize(
    ("asked", "wrong", "meant"),
    [
        ("nested1.attr5", r"nested1\.attr5", r"nested1\.attr1"),
        ("nested5", "nested5", "nested1"),
        ("nested11.x.y", "nested11", "nested1"),
    ],
)
def test_a_close_name_is_suggested_in_full(asked: str, wrong: str, meant: str):
    message = f"'{wrong}'; did you mean '{meant}'"
    with pytest.raises(ValueError, match=message):
        get(Schema(), asked)
    with pytest.raises(ValueError, match=message):
        assign(Schema(), asked, 1)


@pytest.mark.fact("config.metadata_relative")
def test_metadata_is_looked_up_relative_to_the_category():
    nested = Schema().nested1
    assert nested.get_attribute_metadata("attr1").name == "nested1.attr1"
    assert nested.get_attribute_metadata("inner.deep").name == "nested1.inner.deep"
    with pytest.raises(ValueError, match=r"metadata of 'nested1\.attr1': 'nested1' is no"):
        nested.get_attribute_metadata("nested1.attr1")


@pytest.mark.fact("config.deprecated_category")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("old.own", "old is old"),
        ("old.inner.deep", "old is old"),
        ("old.inner.gone", "use deep"),
        ("nested1.inner.gone", "use deep"),
        ("nested1.attr1", None),
    ],
)
def test_assigning_what_is_deprecated_warns(
    name: str, message: str | None, caplog: pytest.LogCaptureFixture
):
    config = Schema()
    assert config.get_attribute_metadata(name).deprecated_msg == message
    with caplog.at_level(logging.WARNING, "ipujax"):
        assign(config, name, 7)
    warned = [record.getMessage() for record in caplog.records]
    assert warned == ([] if message is None else [f"'{name}' is deprecated: {message}"])


def test_a_snapshot_of_a_category_alone_is_a_copy():
    frozen = copy_config(Schema().nested1, frozen=True)
    with pytest.raises(ConfigError, match=r"nested1\.attr1"):
        frozen.attr1 = 2


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int, "int"),
        (dict[Any, Any], "dict"),
        (dict[str, int], "typing.Dict[str, int]"),
        (int | list[int] | tuple[int, ...], INTS),
        (tuple[list[float | tuple[str]], ...], None),
    ],
)
def test_types_in_words(hint: Any, text: str | None):
    nested = "typing.Tuple[typing.List[typing.Union[float, typing.Tuple[str]]], ...]"
    assert type_name(hint) == (text or nested)


@given(st.lists(st.one_of(st.booleans(), st.integers(), st.floats(), st.text())))
def test_a_list_fits_if_all_its_elements_do(values: list[Any]):
    assert is_instance(values, list[int]) == all(type(value) is int for value in values)
    assert is_instance(tuple(values), tuple[float | str, ...]) == all(
        type(value) in (float, str) for value in values
    )
    table = dict(enumerate(values))
    assert is_instance(table, dict[int, bool]) == all(type(value) is bool for value in values)
    assert not is_instance(values, tuple[int, ...])
