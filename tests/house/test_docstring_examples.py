"""Every public name of the client: its docstring's examples, run over a private daemon."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import steno
from house.docstring_examples import examples_in, run_async, run_blocking
from support.daemon_in_thread import DaemonInThread

_NAMES = {name: getattr(steno, name) for name in steno.__all__ if name != "__version__"}


def _members(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The public name and its public members, each with its docstring."""
    yield name, inspect.getdoc(value) or ""
    for member in dir(value) if inspect.isclass(value) else ():
        documented = inspect.getattr_static(value, member)
        is_own = isinstance(documented, property | classmethod) or inspect.isfunction(documented)
        if not member.startswith("_") and is_own:
            yield f"{name}.{member}", inspect.getdoc(getattr(value, member)) or ""


DOCSTRINGS = {
    name: text
    for public, value in _NAMES.items()
    if not (inspect.isclass(value) and issubclass(value, Exception))
    for name, text in _members(public, value)
} | {name: inspect.getdoc(value) or "" for name, value in _NAMES.items() if inspect.isclass(value)}

BLOCKING = [name for name in DOCSTRINGS if name.startswith("Blocking") or name == "connect_sync"]
ASYNC = [name for name in DOCSTRINGS if name not in BLOCKING]


@pytest.fixture
def home(daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STENO_HOME", str(daemon.root))
    monkeypatch.delenv("STENO_SOCKET", raising=False)
    return daemon.root


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ASYNC)
def test_an_example_prints_what_its_docstring_shows(name: str, backend: str, home: Path) -> None:
    examples = examples_in(DOCSTRINGS[name])
    assert examples, f"{name} has no example"

    async def run() -> list[str]:
        async with steno.connect(name="planner") as client:
            session = await client.open("talk")
            await session.append_message({"role": "user", "content": "hi"})
            await session.checkpoint()
            names = {"steno": steno, "anyio": anyio, "client": client, "session": session}
            return await run_async(examples, names)

    assert anyio.run(run, backend=backend) == []


@pytest.mark.parametrize("name", BLOCKING)
def test_an_example_of_the_blocking_client_prints_what_its_docstring_shows(
    name: str, home: Path
) -> None:
    examples = examples_in(DOCSTRINGS[name])
    assert examples, f"{name} has no example"
    with steno.connect_sync(name="planner") as client:
        session = client.open("talk")
        session.append_message({"role": "user", "content": "hi"})
        session.checkpoint()
        names = {"steno": steno, "client": client, "session": session}
        assert run_blocking(examples, names) == []
