"""The texts of the errors that the program raises and of the doctor's findings, from its sources.

A text has `…` for each part that depends on the case. A text that a variable holds is looked for in
the same function; one that only the running program knows is left out.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from support.project import PROJECT, SOURCES

HOLE: Final = "…"

ERRORS: Final = frozenset(
    {
        "BadRequest", "NotFound", "Exists", "Conflict", "Expired", "Busy", "Held", "TooLarge",
        "Corrupt", "Incompatible", "Unauthorized", "ShuttingDown", "StorageFailed", "Internal",
        "Unreachable", "OutcomeUnknown", "StartFailed", "Silence", "ModuleNotFoundError",
        "RuntimeError",
    }
)  # fmt: skip
"""Calls whose first texts are an error that a user can meet."""

GENERATED: Final = (
    "_sync/client.py", "_sync/session.py", "_sync/stream.py", "_sync/streams.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ErrorText:
    """One text and the place where it is raised."""

    text: str
    place: str


FINDINGS: Final = frozenset({"warning", "problem"})
"""The functions that make a finding of the doctor with a remedy."""


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of one module: of its errors, of the findings of the doctor, and all."""

    raised: list[ErrorText]
    findings: list[ErrorText]
    all: set[str]


def raised_texts() -> list[ErrorText]:
    """The text of every error."""
    return [
        each
        for file in SOURCES
        if not str(file).endswith(GENERATED)
        for each in _texts_in(file).raised
    ]


def doctor_findings() -> list[ErrorText]:
    """The text of every warning and problem of the doctor."""
    folder = PROJECT / "client" / "steno_cli" / "doctor"
    return [each for file in sorted(folder.glob("*.py")) for each in _texts_in(file).findings]


def all_texts() -> set[str]:
    """Every text of the sources, whatever it is for."""
    found = {each.text for each in (*raised_texts(), *doctor_findings())}
    return found.union(*(_texts_in(file).all for file in SOURCES))


@cache
def _texts_in(file: Path) -> _Texts:
    """The texts and not the tree, which takes a hundred times their memory."""
    tree = ast.parse(file.read_bytes())
    nodes = [*ast.walk(tree)]
    functions = [each for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    calls = [
        (call, function, f"{file.relative_to(PROJECT)}:{call.lineno}")
        for function in functions
        for call in _own(function)
        if isinstance(call, ast.Call)
    ]
    nothing = ast.Module([], [])
    return _Texts(
        [text for call in calls if _name(call[0]) in ERRORS for text in _argument(*call)],
        [text for call in calls if _name(call[0]) in FINDINGS for text in _argument(*call)],
        {
            text
            for node in nodes
            if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)
            for text in _patterns(node, nothing)
        },
    )


def _argument(call: ast.Call, function: ast.AST, place: str) -> Iterator[ErrorText]:
    if call.args:
        for text in _patterns(call.args[0], function):
            if text.strip(f"{HOLE} "):
                yield ErrorText(text, place)


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions inside it."""
    waiting = [function]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield child
                waiting.append(child)


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _patterns(node: ast.expr, function: ast.AST) -> list[str]:
    """The texts that an expression can have."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(_part(each, function) for each in parts)]
        case ast.BinOp(left=left, right=right):
            ends = _patterns(right, function) or [HOLE]
            return [a + b for a in _patterns(left, function) or [HOLE] for b in ends]
        case ast.IfExp(body=body, orelse=other):
            return _patterns(body, function) + _patterns(other, function)
        case ast.Name():
            assigned = _last_assigned(node, function)
            return [] if assigned is None else _patterns(assigned, function)
        case _:
            return []


def _last_assigned(name: ast.Name, function: ast.AST) -> ast.expr | None:
    """The value that the function gave a variable last, in the order of its lines."""
    values = [
        each.value
        for each in _own(function)
        if isinstance(each, ast.Assign)
        and each.lineno < name.lineno
        and any(isinstance(target, ast.Name) and target.id == name.id for target in each.targets)
    ]
    return max(values, key=lambda value: value.lineno, default=None)


def _part(node: ast.expr, function: ast.AST) -> str:
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.FormattedValue(value=ast.Name() as name):
            texts = _patterns(name, function)
            return texts[0] if len(texts) == 1 else HOLE
        case _:
            return HOLE
