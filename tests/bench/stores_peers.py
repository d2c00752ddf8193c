"""Drivers of other stores for the conformance suite, each with its documented settings.

A driver runs in the environment of its store, so its driver imports the store.
A driver declares what the store's own interface offers; `keys` means that the interface takes an
id for what is stored.
"""

import asyncio
import json
import os
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def _text(entry: Entry) -> str:
    return json.dumps(entry)


class _Loop:
    """The event loop of a store with an async interface."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)


# --- files ----------------------------------------------------------------------------------------


class JsonlDriver:
    """`open("a")`, one line an entry; lines that cannot be parsed are skipped."""

    offers = frozenset({"clear"})
    version = 'open("a")'

    def open(self, folder: Path, session: str) -> "Jsonl":
        return Jsonl(folder / f"{session}.jsonl")


class Jsonl:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("a", encoding="utf-8")

    def append(self, entry: Entry, key: str) -> None:
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()

    def load(self) -> list[Entry]:
        entries = []
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    entries.append(json.loads(line))
                except ValueError:
                    continue
        return entries

    def clear(self) -> None:
        self.file.truncate(0)

    def close(self) -> None:
        self.file.close()


class FsyncedJsonlDriver(JsonlDriver):
    """The same with `os.fsync` after each append."""

    offers = frozenset({"clear", "durable"})
    version = 'open("a") and fsync'

    def open(self, folder: Path, session: str) -> Jsonl:
        return FsyncedJsonl(folder / f"{session}.jsonl")


class FsyncedJsonl(Jsonl):
    def append(self, entry: Entry, key: str) -> None:
        super().append(entry, key)
        os.fsync(self.file.fileno())


class _PeerDriver:
    """A driver of an installed package.

    Attributes:
        package: the package, for its version.
        module: what an open needs; imported beforehand, because several processes have to open a
            session at the same time and an import takes seconds.
    """

    package: str
    module: str

    def __init__(self) -> None:
        import_module(self.module)
        self.version = f"{self.package} {version(self.package)}"


class KimiDriver(_PeerDriver):
    """kimi-cli's `Context` on a file; a load is the restore of a new object."""

    offers = frozenset({"clear", "revert"})
    package, module = "kimi-cli", "kimi_cli.soul.context"

    def open(self, folder: Path, session: str) -> "Kimi":
        return Kimi(folder / f"{session}.jsonl")


class Kimi:
    def __init__(self, path: Path) -> None:
        from kimi_cli.soul.context import Context
        from kosong.message import Message

        self.path, self.context_type, self.message = path, Context, Message
        self.loop = _Loop()
        self.context = self.restored()

    def restored(self) -> Any:
        context = self.context_type(self.path)
        self.loop.run(context.restore())
        return context

    def append(self, entry: Entry, key: str) -> None:
        message = self.message(role="user", content=_text(entry))
        self.loop.run(self.context.append_message(message))

    def load(self) -> list[Entry]:
        return [json.loads(message.extract_text()) for message in self.restored().history]

    def clear(self) -> None:
        self.loop.run(self.context.clear())

    def checkpoint(self) -> int:
        self.loop.run(self.context.checkpoint(False))
        return int(self.context.n_checkpoints) - 1

    def revert(self, mark: int) -> None:
        self.loop.run(self.context.revert_to(mark))


# --- databases ------------------------------------------------------------------------------------


class OpenAIDriver(_PeerDriver):
    """`SQLiteSession(session, path)` of the OpenAI Agents SDK."""

    offers = frozenset({"batches", "clear", "durable"})
    package, module = "openai-agents", "agents.memory.sqlite_session"

    def open(self, folder: Path, session: str) -> "OpenAI":
        return OpenAI(folder / "sessions.db", session)


class OpenAI:
    def __init__(self, path: Path, session: str) -> None:
        from agents.memory.sqlite_session import SQLiteSession

        self.loop = _Loop()
        self.session = SQLiteSession(session, path)

    def append(self, entry: Entry, key: str) -> None:
        self.append_batch([entry], key)

    def append_batch(self, entries: Sequence[Entry], key: str) -> None:
        items = [{"role": "user", "content": _text(entry)} for entry in entries]
        self.loop.run(self.session.add_items(items))

    def load(self) -> list[Entry]:
        return [json.loads(item["content"]) for item in self.loop.run(self.session.get_items())]

    def clear(self) -> None:
        self.loop.run(self.session.clear_session())

    def close(self) -> None:
        self.session.close()


class LangGraphDriver(_PeerDriver):
    """`SqliteSaver.from_conn_string(path)`; each entry is a checkpoint of its own."""

    offers = frozenset({"keys", "clear", "durable"})
    package, module = "langgraph-checkpoint-sqlite", "langgraph.checkpoint.sqlite"

    def open(self, folder: Path, session: str) -> "LangGraph":
        return LangGraph(folder / "checkpoints.sqlite", session)


class LangGraph:
    def __init__(self, path: Path, session: str) -> None:
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.sqlite import SqliteSaver

        self.new = empty_checkpoint
        self.opened = SqliteSaver.from_conn_string(str(path))
        self.saver = self.opened.__enter__()
        self.saver.setup()
        self.thread = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}

    def append(self, entry: Entry, key: str) -> None:
        # Checkpoints are ordered by id, and so are the keys of the suite.
        checkpoint = {**self.new(), "id": key, "channel_values": {"entry": entry}}
        self.saver.put(self.thread, checkpoint, {"source": "loop", "step": 0}, {})

    def load(self) -> list[Entry]:
        found = [
            each.checkpoint["channel_values"]["entry"] for each in self.saver.list(self.thread)
        ]
        return found[::-1]

    def clear(self) -> None:
        self.saver.delete_thread(self.thread["configurable"]["thread_id"])

    def close(self) -> None:
        self.opened.__exit__(None, None, None)


class AdkDriver(_PeerDriver):
    """`DatabaseSessionService` of Google's ADK on SQLite, which is its documented local store.

    An append whose session object is stale loads the session again and repeats, as its error says.
    """

    offers = frozenset({"keys", "expect", "clear", "durable"})
    package, module = "google-adk", "google.adk.sessions.database_session_service"

    def open(self, folder: Path, session: str) -> "Adk":
        return Adk(folder / "sessions.db", session)


class Adk:
    def __init__(self, path: Path, session: str) -> None:
        from google.adk.errors._stale_session_error import StaleSessionError
        from google.adk.errors.already_exists_error import AlreadyExistsError
        from google.adk.events.event import Event
        from google.adk.sessions import DatabaseSessionService
        from google.genai import types
        from sqlalchemy.exc import IntegrityError

        self.stale, self.duplicate = StaleSessionError, IntegrityError
        self.event, self.types = Event, types
        self.loop = _Loop()
        self.service = DatabaseSessionService(f"sqlite+aiosqlite:///{path}")
        self.names = {"app_name": "suite", "user_id": "user", "session_id": session}
        self.heads: list[Any] = []
        if self.get() is None:
            with suppress(AlreadyExistsError):
                self.loop.run(self.service.create_session(**self.names))
        self.session = self.get()

    def get(self) -> Any:
        return self.loop.run(self.service.get_session(**self.names))

    def append(self, entry: Entry, key: str, expect: int | None = None) -> None:
        content = self.types.Content(role="user", parts=[self.types.Part(text=_text(entry))])
        while True:
            session = self.session if expect is None else self.heads[expect]
            event = self.event(author="user", id=key, content=content, timestamp=time.time())
            try:
                self.loop.run(self.service.append_event(session, event))
            except self.duplicate:
                if any(each.id == key for each in self.get().events):
                    return
                raise
            except self.stale:
                if expect is not None:
                    raise
                self.session = self.get()
            else:
                return

    def load(self) -> list[Entry]:
        return [json.loads(event.content.parts[0].text) for event in self.get().events]

    def head(self) -> int:
        self.heads.append(self.get())
        return len(self.heads) - 1

    def clear(self) -> None:
        self.loop.run(self.service.delete_session(**self.names))
        self.loop.run(self.service.create_session(**self.names))
        self.session = self.get()

    def close(self) -> None:
        self.loop.run(self.service.close())


class LlamaIndexDriver(_PeerDriver):
    """`SQLAlchemyChatStore` of LlamaIndex on a file of SQLite."""

    offers = frozenset({"batches", "clear", "durable"})
    package, module = "llama-index-core", "llama_index.core.storage.chat_store.sql"

    def open(self, folder: Path, session: str) -> "LlamaIndex":
        return LlamaIndex(folder / "chat.db", session)


class LlamaIndex:
    def __init__(self, path: Path, session: str) -> None:
        from llama_index.core.base.llms.types import ChatMessage
        from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

        self.message, self.session = ChatMessage, session
        self.loop = _Loop()
        self.store = SQLAlchemyChatStore("messages", f"sqlite+aiosqlite:///{path}")
        self.load()

    def append(self, entry: Entry, key: str) -> None:
        message = self.message(role="user", content=_text(entry))
        self.loop.run(self.store.add_message(self.session, message))

    def append_batch(self, entries: Sequence[Entry], key: str) -> None:
        messages = [self.message(role="user", content=_text(entry)) for entry in entries]
        self.loop.run(self.store.add_messages(self.session, messages))

    def load(self) -> list[Entry]:
        messages = self.loop.run(self.store.get_messages(self.session))
        return [json.loads(message.content) for message in messages]

    def clear(self) -> None:
        self.loop.run(self.store.delete_messages(self.session))


class StrandsDriver(_PeerDriver):
    """`FileSessionManager` of Strands Agents: a file for each message, numbered by its writer."""

    offers = frozenset()
    package, module = "strands-agents", "strands.session.file_session_manager"

    def open(self, folder: Path, session: str) -> "Strands":
        return Strands(folder, session)


class Strands:
    def __init__(self, folder: Path, session: str) -> None:
        from strands.session.file_session_manager import FileSessionManager
        from strands.types.exceptions import SessionException
        from strands.types.session import SessionAgent, SessionMessage

        self.message, self.session = SessionMessage, session
        try:
            self.manager = FileSessionManager(session, storage_dir=str(folder))
        except SessionException:
            # Another process created the session since this one looked for it.
            self.manager = FileSessionManager(session, storage_dir=str(folder))
        self.manager.create_agent(session, SessionAgent("agent", {}, {}))
        self.next = len(self.manager.list_messages(session, "agent"))

    def append(self, entry: Entry, key: str) -> None:
        content = {"role": "user", "content": [{"text": _text(entry)}]}
        message = self.message.from_message(content, self.next)
        self.manager.create_message(self.session, "agent", message)
        self.next += 1

    def load(self) -> list[Entry]:
        found = self.manager.list_messages(self.session, "agent")
        return [json.loads(each.message["content"][0]["text"]) for each in found]


class AgentFrameworkDriver(_PeerDriver):
    """`FileHistoryProvider` of the Microsoft Agent Framework: a file of lines for each session."""

    offers = frozenset()
    package, module = "agent-framework-core", "agent_framework"

    def open(self, folder: Path, session: str) -> "AgentFramework":
        return AgentFramework(folder, session)


class AgentFramework:
    def __init__(self, folder: Path, session: str) -> None:
        import warnings

        from agent_framework import FileHistoryProvider, Message

        self.message, self.session = Message, session
        self.loop = _Loop()
        with warnings.catch_warnings(action="ignore"):
            # It says that the provider is experimental.
            self.provider = FileHistoryProvider(folder)

    def append(self, entry: Entry, key: str) -> None:
        message = self.message("user", [_text(entry)])
        self.loop.run(self.provider.save_messages(self.session, [message]))

    def load(self) -> list[Entry]:
        messages = self.loop.run(self.provider.get_messages(self.session))
        return [json.loads(each.text) for each in messages]


class AgnoDriver(_PeerDriver):
    """`SqliteDb(db_file=path)` of Agno; each entry is a run of the session."""

    offers = frozenset({"keys", "clear", "durable"})
    package, module = "agno", "agno.db.sqlite"

    def open(self, folder: Path, session: str) -> "Agno":
        return Agno(folder / "agno.db", session)


class Agno:
    def __init__(self, path: Path, session: str) -> None:
        from agno.db.sqlite import SqliteDb
        from agno.session.agent import AgentSession

        self.session, self.make = session, AgentSession
        self.db = SqliteDb(db_file=str(path))
        self.create()

    def create(self) -> None:
        self.db.upsert_session(self.make(session_id=self.session, agent_id="suite"))

    def append(self, entry: Entry, key: str) -> None:
        run = {"run_id": key, "agent_id": "suite", "content": _text(entry)}
        self.db.upsert_run(run, self.session)

    def load(self) -> list[Entry]:
        rows, _ = self.db.get_runs(session_id=self.session, deserialize=False)
        return [json.loads(row["run_data"]["content"]) for row in rows]

    def clear(self) -> None:
        self.db.delete_session(self.session)
        self.create()

    def close(self) -> None:
        self.db.close()
