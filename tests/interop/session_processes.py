"""What other processes do with the adapters of the other frameworks."""

import asyncio
from typing import Any

import steno


def append_adk_events(root: str, name: str, number: int) -> None:
    """Append events to one session; a stale session is loaded again, as its error says."""
    from google.adk.errors._stale_session_error import StaleSessionError
    from google.adk.events.event import Event

    from steno.adapters.google_adk import StenoSessionService

    async def append() -> None:
        async with steno.connect(root) as client:
            service = StenoSessionService(client)
            session: Any = None
            for each in range(number):
                while True:
                    session = session or await service.get_session(**ADK_NAMES)
                    event = Event(author=name, id=f"{name}-{each}", timestamp=1.0)
                    try:
                        await service.append_event(session, event)
                        break
                    except StaleSessionError:
                        session = None

    asyncio.run(append())


def continue_adk_run(root: str) -> None:
    """Continue the session of an agent."""
    from interop.fake_models import run_adk

    asyncio.run(run_adk(root, "And now?"))


ADK_NAMES = {"app_name": "shop", "user_id": "ada", "session_id": "talk"}


def add_llama_messages(root: str, name: str, number: int) -> None:
    """Add messages to one key."""
    from llama_index.core.llms import ChatMessage

    from steno.adapters.llama_index import StenoChatStore

    with steno.connect_sync(root) as client:
        store = StenoChatStore(client)
        for each in range(number):
            store.add_message("talk", ChatMessage(role="user", content=f"{name}-{each}"))


def add_strands_messages(root: str, name: str, number: int) -> None:
    """Add messages to one agent; a number that is taken is that of another process."""
    from strands.types.exceptions import SessionException
    from strands.types.session import SessionMessage

    from steno.adapters.strands import StenoSessionRepository

    with steno.connect_sync(root) as client:
        repository = StenoSessionRepository(client)
        number_of, added = 0, 0
        while added < number:
            content = {"role": "user", "content": [{"text": f"{name}-{added}"}]}
            try:
                message = SessionMessage.from_message(content, number_of)
                repository.create_message("talk", "till", message)
                added += 1
            except SessionException:
                pass
            number_of += 1


def save_maf_messages(root: str, name: str, number: int) -> None:
    """Save messages of one session, and a checkpoint with each."""
    from agent_framework import Message, WorkflowCheckpoint

    from steno.adapters.agent_framework import StenoCheckpointStorage, StenoHistoryProvider

    async def save() -> None:
        async with steno.connect(root) as client:
            history, storage = StenoHistoryProvider(client), StenoCheckpointStorage(client)
            for each in range(number):
                text = f"{name}-{each}"
                await history.save_messages("talk", [Message("user", [text])])
                await storage.save(WorkflowCheckpoint("flow", "hash", checkpoint_id=text))

    asyncio.run(save())


def continue_strands_run(root: str) -> None:
    """Continue the session of an agent."""
    from interop.fake_models import run_strands

    run_strands(root, "And now?")


def continue_llama_run(root: str) -> None:
    """Continue the session of a chat engine."""
    from interop.fake_models import run_llama

    run_llama(root, "And now?")


def continue_maf_run(root: str) -> None:
    """Continue the session of an agent."""
    from interop.fake_models import run_maf

    asyncio.run(run_maf(root, "And now?"))
