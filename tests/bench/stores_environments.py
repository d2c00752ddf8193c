"""The environments of other stores: one of their own each, made by pip."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.project import PROJECT

_INSTALL_S_MAX: Final = 900
_MODULES: Final = [str(PROJECT / folder) for folder in ("client", "tests")]
"""What a process of the suite imports beside the store: the standard library alone is behind it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A store of the table.

    Attributes:
        name: the head of its column.
        driver: its driver, `module:name`.
        settings: how it is used, and with which settings.
        requirements: what pip installs; nothing for a store of this environment.
        python: the oldest Python that it runs on.
    """

    name: str
    driver: str
    settings: str
    requirements: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)


CANDIDATES: Final = (
    Candidate(
        "steno",
        "steno.testing.stores.steno_driver:Driver",
        "the blocking client, `durability=\"synced\"` (the default)",
    ),
    Candidate(
        "JSONL",
        "bench.stores_peers:JsonlDriver",
        "`open(\"a\")`, a line and a flush; a load skips lines that cannot be parsed",
    ),
    Candidate(
        "JSONL, fsync",
        "bench.stores_peers:FsyncedJsonlDriver",
        "the same with `os.fsync`",
    ),
    Candidate(
        "OpenAI Agents",
        "bench.stores_peers:OpenAIDriver",
        "`SQLiteSession(session, path)`; it sets WAL itself",
        ("openai-agents==0.24.0",),
    ),
    Candidate(
        "LangGraph",
        "bench.stores_peers:LangGraphDriver",
        "`SqliteSaver.from_conn_string(path)`; it sets WAL itself; an entry is a checkpoint",
        ("langgraph-checkpoint-sqlite==3.1.2",),
    ),
    Candidate(
        "Google ADK",
        "bench.stores_peers:AdkDriver",
        "`DatabaseSessionService(\"sqlite+aiosqlite:///...\")`; a stale session is loaded again",
        ("google-adk==2.13.0", "sqlalchemy[asyncio]", "aiosqlite"),
    ),
    Candidate(
        "LlamaIndex",
        "bench.stores_peers:LlamaIndexDriver",
        "`SQLAlchemyChatStore(table, \"sqlite+aiosqlite:///...\")`",
        ("llama-index-core==0.14.25", "aiosqlite", "sqlalchemy[asyncio]"),
    ),
    Candidate(
        "Strands Agents",
        "bench.stores_peers:StrandsDriver",
        "`FileSessionManager(session, storage_dir=folder)`; messages are numbered as it does it",
        ("strands-agents==1.62.0",),
    ),
    Candidate(
        "Agent Framework",
        "bench.stores_peers:AgentFrameworkDriver",
        "`FileHistoryProvider(folder)` of Microsoft's framework",
        ("agent-framework-core==1.23.0",),
    ),
    Candidate(
        "Agno",
        "bench.stores_peers:AgnoDriver",
        "`SqliteDb(db_file=path)`; it sets WAL itself; an entry is a run",
        ("agno==3.1.10", "sqlalchemy[asyncio]"),
    ),
    Candidate(
        "kimi-cli",
        "bench.stores_peers:KimiDriver",
        "`Context(path)`; a load restores a new object",
        ("kimi-cli==1.52.0", "-c", str(PROJECT / "tests" / "interop" / "constraints.txt")),
        (3, 12),
    ),
)  # fmt: skip


class Missing(Exception):
    """A store cannot be driven here, for the reason given."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The interpreter and the module path of a store's processes."""

    python: str
    path: list[str]


def environment_of(candidate: Candidate, folder: Path, *, install: bool) -> Environment:
    """The environment of a store.

    Args:
        candidate: the store.
        folder: where environments are kept.
        install: make the environment if there is none.

    Raises:
        Missing: there is none, and none was or could be made.
    """
    if not candidate.requirements:
        return Environment(sys.executable, [path for path in sys.path if path])
    home = folder / candidate.name.lower().replace(" ", "-")
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        if not install:
            raise Missing("it is not installed: repeat with --install")
        _install(candidate, home)
    return Environment(str(python), _MODULES)


def _install(candidate: Candidate, home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    base = _python_for(candidate.python)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--no-compile"]
    for command in ([base, "-m", "venv", str(home)], [*pip, *candidate.requirements]):
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_S_MAX, check=False
        )
        if ran.returncode != 0:
            errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
            raise Missing((errors or ran.stderr.splitlines() or ["pip failed"])[-1])
    (home / "installed").touch()


def _python_for(oldest: tuple[int, int]) -> str:
    """An interpreter that is new enough; this one if it is."""
    if sys.version_info >= oldest:
        return sys.executable
    versions = Path.home() / ".pyenv" / "versions"
    for minor in (13, 12):
        named = shutil.which(f"python3.{minor}")
        for candidate in (*([named] if named else []), *versions.glob(f"3.{minor}.*/bin/python3")):
            code = f"import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, {minor}))"
            if subprocess.run([candidate, "-c", code], check=False).returncode == 0:
                return str(candidate)
    raise Missing(f"it needs Python {oldest[0]}.{oldest[1]}, and there is none")
