"""What other processes do with conversations; a process that is spawned imports this module."""

from multiprocessing import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import anyio

import steno
from steno.adapters.pydantic_ai import StenoConversationStore


def save_prompts(
    root: str, name: str, number: int, all_loaded: Barrier, conflicts: "Queue[int]"
) -> None:
    """Save prompts to the conversation `talk`; a conflict is loaded and saved again.

    Nobody saves before all have loaded the same revision, so all first saves but one are conflicts.
    """
    from pydantic_ai.conversation_store import ConversationConflict
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    async def save() -> int:
        met = 0
        async with steno.connect(root) as client:
            store: Any = StenoConversationStore(client)
            conversation = await store.load("talk")
            await anyio.to_thread.run_sync(all_loaded.wait)
            for each in range(number):
                is_saved = False
                while not is_saved:
                    conversation.messages.append(
                        ModelRequest(parts=[UserPromptPart(f"{name}-{each}")])
                    )
                    try:
                        await store.save(conversation)
                        is_saved = True
                    except ConversationConflict:
                        met += 1
                    conversation = await store.load("talk")
        return met

    conflicts.put(anyio.run(save))


def run_agent(root: str, prompt: str, outputs: "Queue[str]") -> None:
    """Run an agent once in the conversation `talk`, and save its run."""
    from pydantic_ai import Agent, Conversation
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        parts = [part for each in messages for part in each.parts]
        texts = [str(part.content) for part in parts if isinstance(part, UserPromptPart | TextPart)]
        return ModelResponse(parts=[TextPart("+".join(texts))])

    async def run() -> str:
        async with steno.connect(root) as client:
            store = StenoConversationStore(client)
            conversation = await store.load("talk") or Conversation(conversation_id="talk")
            result = await Agent(FunctionModel(answer)).run(prompt, conversation=conversation)
            await store.save(result)
        return str(result.output)

    outputs.put(anyio.run(run))
