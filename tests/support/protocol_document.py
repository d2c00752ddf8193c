"""PROTOCOL.md as chapters, tables, examples and a grammar."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from steno_protocol import commands
from support.project import PROJECT

FILE = PROJECT / "protocol" / "PROTOCOL.md"

REQUIRED = "required"


def _pattern(alias: object) -> str | None:
    info = inspect.type_info(alias)
    assert isinstance(info, inspect.StrType)
    return info.pattern


_PATTERNS = {
    _pattern(commands.PositionText): "position",
    _pattern(commands.Key): "key",
    _pattern(commands.Name): "name",
    _pattern(commands.Label): "label",
    _pattern(commands.StreamName): "stream",
    _pattern(commands.FileName): "file",
}


@dataclass(frozen=True, slots=True)
class Example:
    """One block of code.

    Attributes:
        kind: what it is an example of: request, record, reply, event, line or grammar.
        name: the command, or the kind of reply or event; empty for the others.
        text: what is between the fences.
        line: line of the opening fence, for messages.
    """

    kind: str
    name: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Section:
    """The text below a heading, up to the next one of the same level or above."""

    title: str
    level: int
    text: str
    line: int

    @property
    def examples(self) -> list[Example]:
        """The blocks of code in it."""
        return list(_examples(self.text, self.line))

    @property
    def sections(self) -> dict[str, "Section"]:
        """The sections one level down, by title."""
        below = _sections(self.text, self.line)
        return {part.title: part for part in below if part.level == self.level + 1}

    def table(self, first_column: str) -> list[dict[str, str]]:
        """The rows of the table with this first column, as cells by column."""
        for rows in _tables(self.text):
            if next(iter(rows[0])) == first_column:
                return rows
        raise AssertionError(f"{self.title!r} has no table that begins with {first_column!r}")


def chapters() -> dict[str, Section]:
    """The chapters of the document by title, without their numbers."""
    text = FILE.read_text()
    return {
        re.sub(r"^[0-9]+\. ", "", section.title): section
        for section in _sections(text, 1)
        if section.level == 2
    }


def code(cell: str) -> str:
    """The text in the first backticks of a cell or line."""
    found = re.search(r"`([^`]+)`", cell)
    assert found is not None, f"there is no code in {cell!r}"
    return found[1]


def codes(text: str) -> list[str]:
    """Everything that stands in backticks, in order."""
    return re.findall(r"`([^`\n]+)`", text)


def fields_of(struct: type[msgspec.Struct]) -> dict[str, tuple[str, str]]:
    """Type and default of each field, in the words of the document's tables."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return {
        field.encode_name: (_type_text(field.type), _default_text(field)) for field in info.fields
    }


def _type_text(type_: inspect.Type) -> str:
    match type_:
        case inspect.UnionType():
            parts = [part for part in type_.types if not isinstance(part, inspect.NoneType)]
            return " or ".join(map(_type_text, parts))
        case inspect.IntType(ge=None, le=None):
            return "integer"
        case inspect.IntType():
            low, high = ("" if each is None else each for each in (type_.ge, type_.le))
            return f"integer {low}..{high}"
        case inspect.StrType(pattern=str() as pattern):
            return _PATTERNS[pattern]
        case inspect.StrType(max_length=int() as most):
            return f"text {type_.min_length or 0}..{most} characters"
        case inspect.LiteralType():
            return " or ".join(f'`"{value}"`' for value in sorted(type_.values, key=str))
        case inspect.EnumType():
            return {"ErrorCode": "error code", "Outcome": "outcome"}[type_.cls.__name__]
        case inspect.ListType() | inspect.VarTupleType():
            return f"array of {_type_text(type_.item_type)}"
        case inspect.DictType(value_type=inspect.AnyType()):
            return "object"
        case inspect.DictType():
            return f"object of {_type_text(type_.value_type)}"
        case inspect.StructType():
            return type_.cls.__name__
        case _:
            words: dict[type[inspect.Type], str] = {
                inspect.StrType: "text",
                inspect.BoolType: "boolean",
                inspect.FloatType: "number",
            }
            return words[type(type_)]


def _default_text(field: inspect.Field) -> str:
    if field.required:
        return REQUIRED
    made: Any = field.default_factory
    default = field.default if made is msgspec.NODEFAULT else made()
    return f"`{json.dumps(default)}`"


def _sections(text: str, first_line: int) -> list[Section]:
    lines = text.splitlines()
    headings = list(_headings(lines))
    found: list[Section] = []
    for index, (number, level, title) in enumerate(headings):
        ends = (other for other, depth, _ in headings[index + 1 :] if depth <= level)
        end = next(ends, len(lines))
        body = "\n".join(lines[number + 1 : end])
        found.append(Section(title, level, body, first_line + number + 1))
    return found


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    fenced = False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and (match := re.match(r"(#+) (.+)", line)):
            yield number, len(match[1]), match[2].strip("`")


def _examples(text: str, first_line: int) -> Iterator[Example]:
    for match in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        words = match[1].split()
        line = first_line + text.count("\n", 0, match.start())
        kind = words[1] if len(words) > 1 else (words[0] if words else "")
        yield Example(kind, words[2] if len(words) > 2 else "", match[2].rstrip("\n"), line)


def _tables(text: str) -> Iterator[list[dict[str, str]]]:
    for match in re.finditer(r"(?:^\|.*\|\n?)+", text, re.MULTILINE):
        head, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in match[0].splitlines()
        ]
        yield [dict(zip(head, row, strict=True)) for row in rows]
