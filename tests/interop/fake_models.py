"""Runs of agents whose model answers with what it was sent, so that a run shows what it resumes."""

from collections.abc import AsyncGenerator
from typing import Any

import steno


async def run_adk(root: str, text: str) -> str:
    """Let an agent of ADK answer; returns the answer."""
    from google.adk.agents import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.genai import types

    from interop.session_processes import ADK_NAMES
    from steno.adapters.google_adk import StenoSessionService

    class Echo(BaseLlm):
        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            heard = [part.text for each in llm_request.contents for part in each.parts]
            yield LlmResponse(content=types.ModelContent(f"heard {len(heard)}: {heard[-1]}"))

    async with steno.connect(root) as client:
        service: Any = StenoSessionService(client)
        if await service.get_session(**ADK_NAMES) is None:
            await service.create_session(**ADK_NAMES, state={"user:city": "Turin"})
        agent = LlmAgent(name="till", model=Echo(model="echo"), output_key="answer")
        runner = Runner(agent=agent, app_name="shop", session_service=service)
        message = types.UserContent(text)
        answers = [
            event.content.parts[0].text
            async for event in runner.run_async(
                user_id="ada", session_id="talk", new_message=message
            )
            if event.is_final_response()
        ]
        return str(answers[-1])
