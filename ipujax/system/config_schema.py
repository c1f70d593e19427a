"""Configuration trees declared as classes: typed options, categories, and helpful errors.

A category is a class; an option is an annotated class attribute:

    class Loops(ConfigNode):
        '''Options of loops.'''

        unroll: int = option(1, "How many iterations to unroll.")

    class MyConfig(ConfigNode):
        depth: int | list[int] = option(2, "How deep.")
        loops: Loops = category()

The description of an option may also stand under `Attributes:` in the docstring of its class.
The annotation is checked on every assignment, containers element by element. A name that does not
exist is an error on reading and on writing, with the closest full name as a suggestion.
"""

# Declarations and nodes are two halves of one mechanism and use each other's private names.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

from ipujax.ground import (
    ConfigError,
    ConfigTypeError,
    UnknownOptionError,
    safe_repr,
    suggest_closest_name,
)
from ipujax.system.log import get_logger
from ipujax.system.option_types import is_instance, type_name

Node = TypeVar("Node", bound="ConfigNode")

_ATTRIBUTES = "\n\nAttributes:\n"
_ATTRIBUTE = re.compile(r"^  (\w+): (.*(?:\n    .*)*)", re.MULTILINE)


class Effect(enum.Enum):
    """The effect of an option for a user of this machine, where IPUs are virtual."""

    SYSTEM = "which virtual IPUs a device has, how it attaches, and which chip is modelled"
    VALUES = "the numbers that programs compute"
    HOST = "how the host compiles, caches and feeds programs"
    MODEL = "the modelled memory and cycles; numbers at most by rounding"
    NONE = "nothing: accepted so that programs port unchanged"


def parse_class_docstring(cls: type) -> tuple[str, dict[str, str]]:
    """Returns a class's description and those of its attributes; empty under `python -OO`."""
    description, _, attributes = (inspect.getdoc(cls) or "").partition(_ATTRIBUTES)
    docs = {name: " ".join(doc.split()) for name, doc in _ATTRIBUTE.findall(attributes)}
    return description, docs


@dataclasses.dataclass(frozen=True)
class AttributeMetadata:
    """The name, description, type and default of one option or category.

    Attributes:
      name: the full dotted name, from the root of the configuration.
      doc: its description.
      effect: what it changes here; `None` for a category.
      deprecated_msg: the reason not to use it any more, its own or else its category's;
        `None` if it is not deprecated.
    """

    name: str
    doc: str
    effect: Effect | None
    deprecated_msg: str | None
    _hint: Any = dataclasses.field(repr=False)
    _default: object = dataclasses.field(repr=False)

    @property
    def type(self) -> str | None:
        """The type of the option in words; `None` for a category."""
        return None if self._hint is None else type_name(self._hint)

    @property
    def default(self) -> Any:
        """A fresh copy of the option's default; `None` for a category."""
        return copy.deepcopy(self._default)

    @property
    def deprecated(self) -> bool:
        """Returns whether the option or its category should no longer be used."""
        return self.deprecated_msg is not None

    def check_type(self, value: object) -> bool:
        """Checks a value against the option's type.

        Returns:
          True.

        Raises:
          ConfigTypeError: (a `TypeError`) if the option does not take such a value.
        """
        if self._hint is None:
            raise ConfigTypeError(f"'{self.name}' is a category: it takes no value")
        if not is_instance(value, self._hint):
            raise ConfigTypeError(
                f"'{self.name}' was given {safe_repr(value)}, of type {type(value).__name__}, but "
                f"it must be of type {self.type}"
            )
        return True

    def warn_if_deprecated(self) -> None:
        """Logs a warning if the option or its category is deprecated."""
        if self.deprecated:
            get_logger().warning("'%s' is deprecated: %s", self.name, self.deprecated_msg)


@dataclasses.dataclass(frozen=True)
class Member:
    """The declaration of an option or a category; reads its value in a node.

    Its name, type and description are filled in when the class that declares it is made.
    `settings`, `convert`, `trial` and `translate` are as in `option`.
    """

    default: Any = None
    doc: str = ""
    effect: Effect | None = None
    deprecated: str | None = None
    limits: tuple[float, float] | None = None
    check: Callable[[Any], object] | None = None
    settings: tuple[str, ...] = ()
    convert: Callable[[Any], object] | None = None
    trial: object = None
    translate: Callable[[Any], Any] | None = None
    name: str = ""
    hint: Any = None

    def __get__(self, node: ConfigNode | None, owner: type) -> Any:
        return self if node is None else node._values[self.name]


class Option(Member):
    """The declaration of one option; writes its value in a node, too."""

    def __set__(self, node: ConfigNode, value: object) -> None:
        metadata = node.get_attribute_metadata(self.name)
        if node._frozen:
            raise ConfigError(
                f"'{metadata.name}' belongs to a configuration that is in use and cannot change; "
                "assign to your own config and configure the system again"
            )
        if self.translate is not None:
            value = self.translate(value)
        self.check_value(metadata, value)
        metadata.warn_if_deprecated()
        node._values[self.name] = value
        node._assigned.add(self.name)

    def check_value(self, metadata: AttributeMetadata, value: object) -> None:
        """Raises for a value that the option cannot have."""
        metadata.check_type(value)
        self._check_limits(metadata.name, value)
        if self.check is not None:
            self.check(value)

    def _check_limits(self, name: str, value: object) -> None:
        if self.limits is None:
            return
        minimum, maximum = self.limits
        has_several = isinstance(value, (list, tuple))
        numbers = cast(Sequence[float], value if has_several else [value])
        if not all(minimum <= number <= maximum for number in numbers):  # not-a-number fails, too
            requirement = f"{'numbers' if has_several else 'a number'} from {minimum} to {maximum}"
            raise ConfigError(f"'{name}' is {value}, but must be {requirement}")


class Category(Member):
    """The declaration of one category within another."""

    def __set__(self, node: ConfigNode, value: object) -> None:
        raise ConfigError(
            f"'{node._full_name(self.name)}' is a category and cannot be assigned to; assign to "
            f"one of its attributes: {', '.join(sorted(self.hint._members))}"
        )


def option(
    default: Any,
    doc: str = "",
    *,
    effect: Effect = Effect.NONE,
    deprecated: str | None = None,
    limits: tuple[float, float] | None = None,
    check: Callable[[Any], object] | None = None,
    settings: tuple[str, ...] = (),
    convert: Callable[[Any], object] | None = None,
    trial: object = None,
    translate: Callable[[Any], Any] | None = None,
) -> Any:
    """Declares an option; its type is the annotation beside it.

    Args:
      default: the value until one is assigned.
      doc: a description; by default, the one in the docstring of the class.
      effect: what it changes here.
      deprecated: why it should no longer be used.
      limits: the least and the greatest number that it, or each number in it, may be.
      check: raises on invalid values; may log notes on valid ones.
      settings: the fields that it sets, as "reader.field": see `settings_of_reader`.
      convert: computes what the fields hold from the option's value; by default it is the same.
      trial: another value than the default, with which a test checks the effect.
      translate: gives the value that is checked and kept for one that is assigned, such as an
        enumeration of a later release.
    """
    return Option(
        default, doc, effect, deprecated, limits, check, settings, convert, trial, translate
    )


def category(*, deprecated: str | None = None) -> Any:
    """Declares a category; its class is the annotation beside it."""
    return Category(deprecated=deprecated)


class ConfigNode:
    """A category of options, or the root of a configuration: subclass it to declare one."""

    _members: typing.ClassVar[dict[str, Member]] = {}
    _values: dict[str, Any]
    _assigned: set[str]  # the options that were ever assigned, even their default
    _frozen: bool
    _path: str
    _parent: ConfigNode | None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        hints, docs = typing.get_type_hints(cls), parse_class_docstring(cls)[1]
        declared_members = {
            name: member for name, member in vars(cls).items() if isinstance(member, Member)
        }
        for name, each in declared_members.items():
            hint, doc = hints[name], each.doc or docs.get(name, "")
            if isinstance(each, Category):
                doc = parse_class_docstring(hint)[0]
            declared_members[name] = dataclasses.replace(each, name=name, hint=hint, doc=doc)
            setattr(cls, name, declared_members[name])
        cls._members = {**cls._members, **declared_members}

    def __init__(self, *, _path: str = "", _parent: ConfigNode | None = None):
        # Plain assignment would go through the schema's own `__setattr__`.
        self.__dict__.update(
            _path=_path, _parent=_parent, _values={}, _assigned=set(), _frozen=False
        )
        for name, member in self._members.items():
            if isinstance(member, Category):
                self._values[name] = member.hint(_path=self._full_name(name), _parent=self)
            else:
                self._values[name] = copy.deepcopy(member.default)

    if not typing.TYPE_CHECKING:  # type checkers then report options that do not exist

        def __getattr__(self, name: str) -> Any:
            raise self._unknown_attribute_error(name)

        def __setattr__(self, name: str, value: object) -> None:
            if name not in self._members:
                raise self._unknown_attribute_error(name)
            object.__setattr__(self, name, value)

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *self._members}
        return sorted(name for name in names if not name.startswith("_"))

    def __eq__(self, node: object) -> bool:
        if not isinstance(node, ConfigNode) or type(self) is not type(node):
            return NotImplemented
        return self._values == node._values

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return "\n".join([type(self).__name__, *self._format_options(indent="  ")])

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """Returns the metadata of an option or category.

        Args:
          attr: its full name relative to the category that this is called on, such as
            `"ipu_model.version"` on the root or `"version"` on `ipu_model`.

        Raises:
          UnknownOptionError: (a `ValueError`) if there is no such attribute; the message quotes
            the request and the first part of it that failed.
        """
        *categories, last = attr.split(".")
        node = self
        for part in categories:
            child = node._values.get(part)
            if not isinstance(child, ConfigNode):
                raise node._unknown_metadata_error(attr, part)
            node = child
        if last not in node._members:
            raise node._unknown_metadata_error(attr, last)
        return node._metadata_of_member(node._members[last])

    def _unknown_metadata_error(self, attr: str, part: str) -> UnknownOptionError:
        parent = f"category '{self._path}'" if self._path else f"the {type(self).__name__}"
        kind = "attribute" if attr.endswith(part) else "category"
        return UnknownOptionError(
            f"could not get the metadata of '{attr}': '{part}' is no {kind} of {parent}"
            + self._suggest_name(self._full_name(part))
        )

    def _metadata_of_member(self, member: Member) -> AttributeMetadata:
        name, message = (
            self._full_name(member.name),
            member.deprecated or self._deprecation_reason(),
        )
        hint = None if isinstance(member, Category) else member.hint
        return AttributeMetadata(name, member.doc, member.effect, message, hint, member.default)

    def _deprecation_reason(self) -> str | None:
        """Returns why this category, or the nearest deprecated one around it, is deprecated."""
        parent, name = self._parent, self._path.rpartition(".")[2]
        if parent is None:
            return None
        return parent._members[name].deprecated or parent._deprecation_reason()

    def _full_name(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _unknown_attribute_error(self, name: str) -> UnknownOptionError:
        # While `copy` or `pickle` rebuilds a node it has no values, hence no name, yet.
        full = self._full_name(name) if "_path" in self.__dict__ else name
        hint = "" if name.startswith("_") else self._suggest_name(full)
        return UnknownOptionError(f"there is no configuration attribute '{full}'{hint}")

    def _suggest_name(self, full_name: str) -> str:
        root = self
        while root._parent is not None:
            root = root._parent
        return suggest_closest_name(full_name, [name for name, _, _ in walk_options(root)])

    def _format_options(self, indent: str) -> Iterator[str]:
        for name, member in self._members.items():
            value = self._values[name]
            if isinstance(value, ConfigNode):
                yield f"{indent}{name}"
                yield from value._format_options(indent + "  ")
            elif isinstance(member, Option) and value != member.default:
                yield f"{indent}{name} = {value!r}  # default: {member.default!r}"
            else:
                yield f"{indent}{name} = {value!r}"


def walk_options(node: ConfigNode) -> Iterator[tuple[str, Member, Any]]:
    """Yields every option and category below a node: its full name, declaration and value."""
    for name, member in node._members.items():
        value = node._values[name]
        yield node._full_name(name), member, value
        if isinstance(value, ConfigNode):
            yield from walk_options(value)


def settings_of_reader(node: ConfigNode, reader: str) -> dict[str, Any]:
    """Returns the values of the fields that options below a node set for one reader.

    Args:
      node: the root of a configuration, or a category.
      reader: what reads them: "compiler" (`lowering.Options`), "model" (`machine.ModelOptions`) or
        "planner" (`machine.PlanOptions`).
    """
    return {
        field: value if member.convert is None else member.convert(value)
        for _, member, value in walk_options(node)
        for setting_reader, field in (setting.split(".") for setting in member.settings)
        if setting_reader == reader
    }


def list_assigned_names(node: ConfigNode) -> frozenset[str]:
    """Returns the node's own options that were ever assigned, even their default."""
    return frozenset(node._assigned)


def copy_config(node: Node, *, frozen: bool) -> Node:
    """Returns an independent copy; with `frozen`, assigning to it is an error."""
    config_copy = copy.deepcopy(node)
    for node_copy in [config_copy, *(value for _, _, value in walk_options(config_copy))]:
        if isinstance(node_copy, ConfigNode):
            node_copy.__dict__["_frozen"] = frozen
    return config_copy
