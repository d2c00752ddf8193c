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


def run_strands(root: str, text: str) -> str:
    """Let an agent of Strands answer; returns the answer."""
    from strands import Agent
    from strands.models import Model
    from strands.session.repository_session_manager import RepositorySessionManager

    from steno.adapters.strands import StenoSessionRepository

    class Echo(Model):
        def update_config(self, **_: Any) -> None: ...

        def get_config(self) -> dict[str, Any]:
            return {}

        async def structured_output(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
            raise NotImplementedError
            yield

        async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
            heard = messages[-1]["content"][0]["text"]
            answer = f"heard {len(messages)}: {heard}"
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answer}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}

    with steno.connect_sync(root) as client:
        manager = RepositorySessionManager(
            "talk", session_repository=StenoSessionRepository(client)
        )
        agent = Agent(model=Echo(), agent_id="till", session_manager=manager, callback_handler=None)
        return str(agent(text)).strip()


def run_llama(root: str, text: str) -> str:
    """Let a chat engine of LlamaIndex answer; returns the answer."""
    from llama_index.core.chat_engine import SimpleChatEngine
    from llama_index.core.llms import MockLLM
    from llama_index.core.memory import ChatMemoryBuffer

    from steno.adapters.llama_index import StenoChatStore

    with steno.connect_sync(root) as client:
        memory = ChatMemoryBuffer.from_defaults(
            chat_store=StenoChatStore(client), chat_store_key="talk", token_limit=10_000,
            tokenizer_fn=str.split,
        )  # fmt: skip
        return str(SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory).chat(text))


async def run_maf(root: str, text: str) -> str:
    """Let an agent of the Microsoft Agent Framework answer; returns the answer."""
    from agent_framework import Agent, BaseChatClient, ChatResponse, Message

    from steno.adapters.agent_framework import StenoHistoryProvider

    class Echo(BaseChatClient):
        def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
            async def answer() -> ChatResponse:
                heard = f"heard {len(messages)}: {messages[-1].text}"
                return ChatResponse(messages=[Message("assistant", [heard])])

            return answer()

    async with steno.connect(root) as client:
        agent = Agent(client=Echo(), context_providers=[StenoHistoryProvider(client)])
        session = agent.create_session(session_id="talk")
        return str((await agent.run(text, session=session)).text)
