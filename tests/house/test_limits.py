"""Bounds: each states its reason and is used."""

import ast
import inspect
import re
from collections import Counter
from types import ModuleType

from steno.llm import limits as llm_limits
from steno.testing.stores import limits as suite_limits
from steno_backup import limits as backup_limits
from steno_cli import command_limits
from steno_follow import limits as following_limits
from steno_present import limits as present_limits
from steno_protocol import limits
from steno_redact import limits as redaction_limits
from steno_search import limits as search_limits
from steno_view import limits as viewer_limits
from stenod_cluster import limits as replication_limits
from support.project import SOURCES

ROOMS = (
    limits, llm_limits, command_limits, redaction_limits, suite_limits, viewer_limits,
    search_limits, replication_limits, present_limits, backup_limits,
    following_limits,
)  # fmt: skip
UNITS = {"KIB", "MIB"}
UNIT_ENDINGS = (
    "_BYTES",
    "_BYTES_MAX",
    "_CHARS_MAX",
    "_S",
    "_S_MAX",
    "_MS",
    "_MAX",
    "_MESSAGES",
    "_BITS",
    "_MIN",
)


def _constants(room: ModuleType) -> dict[str, str | None]:
    """Each constant of a module of bounds with the string below it."""
    body = ast.parse(inspect.getsource(room)).body
    return {
        statement.target.id: _text_of(body[index + 1] if index + 1 < len(body) else None)
        for index, statement in enumerate(body)
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def _text_of(statement: ast.stmt | None) -> str | None:
    match statement:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return text
        case _:
            return None


BOUNDS = {
    name: reason
    for room in ROOMS
    for name, reason in _constants(room).items()
    if name not in UNITS and isinstance(getattr(room, name), int | float)
}


def test_every_bound_is_found_by_these_tests() -> None:
    numbers = {
        name
        for room in ROOMS
        for name, value in vars(room).items()
        if name.isupper() and isinstance(value, int | float)
    }
    assert numbers == {*BOUNDS, *UNITS}


def test_a_bound_has_its_reason_beside_it() -> None:
    assert [bound for bound, reason in BOUNDS.items() if len((reason or "").split()) < 3] == []


def test_a_bound_has_its_unit_in_its_name() -> None:
    assert [bound for bound in BOUNDS if not bound.endswith(UNIT_ENDINGS)] == []


def test_a_bound_is_used_somewhere() -> None:
    words = Counter(word for file in SOURCES for word in re.findall(r"\w+", file.read_text()))
    # Once it comes where it is defined.
    assert [bound for bound in BOUNDS if words[bound] < 2] == []
