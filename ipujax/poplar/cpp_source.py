"""Vertex types in the text of a codelet: their names, kinds and public fields.

The text has been through the preprocessor, whose lines say which file a token is from. Only names
are read here; what a field is, the compiler says.
"""

from __future__ import annotations

import dataclasses as dc
import itertools
import re
from collections.abc import Iterable, Iterator

KINDS = ("Vertex", "MultiVertex", "SupervisorVertex")

_TOKEN = re.compile(
    r'(?P<line>^\#[^\n]*)|(?P<word>[A-Za-z_]\w*)|(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<number>\.?\d(?:[\w.]|[eEpP][+-])*)|(?P<sign>::|->|\S)|(?P<end>\n)",
    re.MULTILINE,
)
_LINE_MARKER = re.compile(r'#(?:line)? (\d+) "((?:\\.|[^"])*)"([ \d]*)')
_SYSTEM_HEADER = "3"  # the flag of a system header in a line marker
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NO_MEMBER = {"using", "typedef", "static", "friend", "template", "enum", "class", "struct"}
_ACCESS = {"public", "private", "protected"}


@dc.dataclass(frozen=True, slots=True)
class Token:
    """A token of the user's text, with its source line."""

    text: str
    file: str
    line: int

    @property
    def source_line(self) -> str:
        """The token's line: `file:line`."""
        return f"{self.file}:{self.line}"


@dc.dataclass(frozen=True, slots=True)
class VertexClass:
    """A vertex type, or a template of vertex types.

    Attributes:
      name: with its namespaces, as C++ and `addVertex` name it.
      kind: one of `KINDS`.
      fields: names of the public fields, those of base classes first.
      is_template: whether it needs arguments.
      instances: the arguments of explicit instantiations, such as `<float,8>`.
      source_line: `file:line`.
    """

    name: str
    kind: str
    fields: tuple[str, ...]
    is_template: bool
    instances: tuple[str, ...]
    source_line: str


@dc.dataclass(slots=True)
class _Class:
    """A class as the text declares it, without the members of its base classes."""

    name: str
    source_line: str
    is_template: bool
    bases: list[str] = dc.field(default_factory=list)
    fields: list[str] = dc.field(default_factory=list)
    computes: bool = False


def read_tokens(preprocessed: str) -> list[Token]:
    """Returns the tokens that are not from system headers."""
    tokens: list[Token] = []
    file, line, is_system = "", 1, False
    for match in _TOKEN.finditer(preprocessed):
        if match["end"]:
            line += 1
        elif match["line"]:
            if marker := _LINE_MARKER.match(match["line"]):
                file, line = marker[2], int(marker[1]) - 1
                is_system = _SYSTEM_HEADER in marker[3].split() or file.startswith("<")
        elif not is_system:
            tokens.append(Token(match[0], file, line))
    return tokens


def find_vertex_classes(tokens: list[Token]) -> list[VertexClass]:
    """Returns the vertex types of a text that have a member `compute`."""
    reader = _Reader(tokens)
    reader.read_scope(0, len(tokens), ())
    vertex_classes: list[VertexClass] = []
    for written_class in reader.classes.values():
        chain = [*_bases_of(written_class, reader.classes)]
        kinds = [base for base_class in chain for base in base_class.bases if base in KINDS]
        if not kinds or not any(base_class.computes for base_class in chain):
            continue
        fields = dict.fromkeys(name for base_class in reversed(chain) for name in base_class.fields)
        instances = tuple(args for name, args in reader.instances if name == written_class.name)
        vertex_classes.append(
            VertexClass(
                written_class.name,
                kinds[0],
                (*fields,),
                written_class.is_template,
                instances,
                written_class.source_line,
            )
        )
    return vertex_classes


def drop_declared_constructors(preprocessed: str, classes: Iterable[VertexClass]) -> str:
    """Returns a text without constructors that are declared only, as Poplar's compiler allows.

    Args:
      preprocessed: the text; its lines stay where they are.
      classes: the text's vertex types.
    """
    names = {vertex_class.name.rpartition("::")[2].partition("<")[0] for vertex_class in classes}
    for name in names:
        if re.search(rf"\b{name}\s*(?:<[^;{{}}]*>\s*)?::\s*{name}\s*\(", preprocessed):
            continue  # the user defines it
        # The declaration follows a member, an access specifier or a line marker.
        declaration = rf"([;{{}}:]|^\#[^\n]*$)(\s*)(?:explicit\s+)?{name}\s*\(\s*\)\s*;"
        preprocessed = re.sub(declaration, _keep_lines, preprocessed, flags=re.MULTILINE)
    return preprocessed


def _keep_lines(declaration: re.Match[str]) -> str:
    prefix = declaration[1] + declaration[2]
    return prefix + "\n" * (declaration[0].count("\n") - prefix.count("\n"))


def _bases_of(start: _Class, classes: dict[str, _Class]) -> Iterator[_Class]:
    yield start
    for base in start.bases:
        for candidate in classes.values():
            if candidate.name.rpartition("::")[2] == base and candidate is not start:
                yield from _bases_of(candidate, classes)


class _Reader:
    """Reads classes and explicit instantiations, in namespaces."""

    def __init__(self, tokens: list[Token]):
        self._tokens = tokens
        self.classes: dict[str, _Class] = {}
        self.instances: list[tuple[str, str]] = []

    def read_scope(self, start: int, end: int, scope: tuple[str, ...]) -> None:
        """Reads the declarations of a namespace."""
        i, is_template = start, False
        while i < end:
            word = self._text(i)
            if word == "namespace":
                i = self._read_namespace(i + 1, scope)
            elif word == "extern" and self._text(i + 2) == "{":
                close = self._skip(i + 2)
                self.read_scope(i + 3, close - 1, scope)
                i = close
            elif word == "template" and self._text(i + 1) == "<":
                i, is_template = self._skip_angles(i + 1), True
            elif word == "template":
                i = self._read_instance(i + 1, scope)
            elif word in ("class", "struct"):
                i = self._read_class(i, scope, is_template)
                is_template = False
            else:
                is_template &= word not in (";", "{")
                i = self._skip(i)

    def _text(self, i: int) -> str:
        return self._tokens[i].text if i < len(self._tokens) else ""

    def _skip(self, i: int) -> int:
        """Returns the index after a token, or after what it opens."""
        opening = self._text(i)
        closing = _CLOSING.get(opening)
        i += 1
        while closing is not None and i < len(self._tokens) and self._text(i) != closing:
            i = self._skip(i)
        return i if closing is None else i + 1

    def _skip_angles(self, i: int) -> int:
        """Returns the index after `<...>`."""
        depth = 0
        while i < len(self._tokens):
            word = self._text(i)
            depth += (word == "<") - (word == ">")
            i = self._skip(i)
            if depth == 0:
                break
        return i

    def _read_namespace(self, i: int, scope: tuple[str, ...]) -> int:
        names: list[str] = []
        while i < len(self._tokens) and self._text(i) not in ("{", ";", "="):
            if self._text(i).isidentifier():
                names.append(self._text(i))
            i += 1
        close = self._skip(i)
        if self._text(i) == "{":
            self.read_scope(i + 1, close - 1, (*scope, *names))
        return close

    def _read_instance(self, i: int, scope: tuple[str, ...]) -> int:
        """Reads `template class Name<...>;` from the token after `template`; returns the end."""
        i += self._text(i) in ("class", "struct")
        name = ""
        while i < len(self._tokens) and self._text(i) not in ("<", ";", "{"):
            name += self._text(i)
            i += 1
        end = self._skip_angles(i) if self._text(i) == "<" else i
        arguments = join_tokens([token.text for token in self._tokens[i:end]])
        self.instances.append(("::".join([*scope, name]), arguments))
        return end

    def _read_class(self, i: int, scope: tuple[str, ...], is_template: bool) -> int:
        is_public = self._text(i) == "struct"
        head, i = i, i + 1
        while self._text(i) in ("[", "alignas", "__attribute__", "("):
            i = self._skip(i)
        if not self._text(i).isidentifier():
            return head + 1
        new_class = _Class(
            "::".join([*scope, self._text(i)]), self._tokens[i].source_line, is_template
        )
        i += 1
        if self._text(i) == "<":  # a specialization, whose fields may differ
            new_class.name += join_tokens([t.text for t in self._tokens[i : self._skip_angles(i)]])
            new_class.is_template = is_template and self._text(i + 1) != ">"
            i = self._skip_angles(i)
        i += self._text(i) == "final"
        if self._text(i) == ":":
            i = self._read_bases(i + 1, new_class)
        if self._text(i) != "{":
            return i
        close = self._skip(i)
        self._read_members(i + 1, close - 1, new_class, is_public)
        self.classes[new_class.name] = new_class
        return close

    def _read_bases(self, i: int, derived_class: _Class) -> int:
        last = ""
        while i < len(self._tokens) and self._text(i) not in ("{", ";"):
            if self._text(i) == ",":
                derived_class.bases.append(last)
            elif self._text(i) == "<":
                i = self._skip_angles(i)
                continue
            elif self._text(i).isidentifier():
                last = self._text(i)
            i += 1
        derived_class.bases.append(last)
        return i

    def _read_members(self, i: int, end: int, owner: _Class, is_public: bool) -> None:
        while i < end:
            if self._text(i) in _ACCESS and self._text(i + 1) == ":":
                is_public = self._text(i) == "public"
                i += 2
                continue
            start, i = i, self._end_of_member(i, end)
            names, computes = self._read_member(start, i)
            owner.computes |= computes
            owner.fields += names if is_public else []

    def _end_of_member(self, i: int, end: int) -> int:
        """Returns the index after a member: after its `;`, or after a function's body."""
        has_parameters = False
        while i < end and self._text(i) != ";":
            has_parameters |= self._text(i) == "("
            is_body = self._text(i) == "{" and has_parameters
            i = self._skip_angles(i) if self._text(i) == "<" else self._skip(i)
            if is_body and self._text(i) != ";":
                return i
        return i + 1

    def _read_member(self, start: int, end: int) -> tuple[list[str], bool]:
        """Returns the fields that a member declares, and whether it is `compute`."""
        names: list[str] = []
        last, i = "", start
        while i < end:
            word = self._text(i)
            if i == start and word == "[" and self._text(i + 1) == "[":
                start = i = self._skip(i)
                continue
            if word in _NO_MEMBER or word == "operator":
                return [], self._has_compute(start, end)
            if word == "(":
                if last not in ("alignas", "__attribute__", "decltype"):
                    return [], last == "compute"
            elif word == ":":  # bits of a word, which have no address
                last = ""
            elif word in ("=", "{", ",", ";"):
                if last:
                    names.append(last)
                last = ""
                while word in ("=", "{") and i < end and self._text(i) not in (",", ";"):
                    i = self._skip(i)
                i += self._text(i) in (",", ";")
                continue
            elif word.isidentifier():
                last = word
            i = self._skip_angles(i) if word == "<" else self._skip(i)
        return names, False

    def _has_compute(self, start: int, end: int) -> bool:
        words = [self._text(i) for i in range(start, end)]
        return ("compute", "(") in itertools.pairwise(words)


def join_tokens(words: list[str]) -> str:
    """Returns tokens as one text, with a blank only between words."""
    text = ""
    for word in words:
        needs_blank = text[-1:].isidentifier() and word[:1].isidentifier()
        text += f" {word}" if needs_blank else word
    return text


def canonical_name(name: str) -> str:
    """Returns the name of a vertex type with blanks only between words."""
    return join_tokens([match[0] for match in _TOKEN.finditer(name) if not match["end"]])
