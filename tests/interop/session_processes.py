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
