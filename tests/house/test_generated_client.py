"""The generated modules of the blocking client."""

import inspect
from typing import Any

import pytest

from steno import BlockingClient, BlockingSession, Client, Session
from support import generate_sync
from support.generate_sync import MODULES, generated, meaning, written

SYNC_ONLY = {"close", "refresh"}
"""Public methods without an async counterpart."""


@pytest.mark.parametrize("module", MODULES)
def test_blocking_module_is_generated_from_its_async_source(module: str) -> None:
    assert meaning(written(module)) == meaning(generated(module))


@pytest.mark.parametrize("module", MODULES)
def test_first_comment_names_the_source_and_the_command(module: str) -> None:
    first, second = written(module).splitlines()[:2]
    assert f"client/steno/_async/{module}.py" in first
    assert second == f"# {generate_sync.COMMAND}"


def test_comparison_sees_each_change_of_code_or_comment_but_no_format() -> None:
    text = written("streams")
    assert meaning(text.replace("return value\n", "return None\n")) != meaning(text)
    assert meaning(text.replace("# Without its fields", "# With its fields")) != meaning(text)
    assert meaning(text.replace('"""The next line."""', '"""A line."""')) != meaning(text)
    assert meaning(text.replace("(Iterator[bytes])", "(\n    Iterator[bytes],\n)")) == meaning(text)


@pytest.mark.parametrize(
    ("asynchronous", "blocking"), [(Client, BlockingClient), (Session, BlockingSession)]
)
def test_both_clients_have_the_same_documented_verbs(
    asynchronous: type[Any], blocking: type[Any]
) -> None:
    verbs = [{name for name in dir(each) if name[0] != "_"} for each in (asynchronous, blocking)]
    assert verbs[1] - verbs[0] <= SYNC_ONLY
    assert verbs[0] <= verbs[1]
    for name in verbs[1]:
        assert inspect.getdoc(getattr(blocking, name)), name


def test_generator_refuses_a_phrase_that_no_longer_occurs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(generate_sync.PHRASES, "streams", [("no such text", "another")])
    with pytest.raises(ValueError, match="occurs 0 times"):
        generated("streams")
