"""Two agents on one session: `python -m llm.agent_loop ROLE ROOT URL`.

The worker makes a checkpoint and asks its model at each step, compacts when its context fills, and
looks for D-Mail. The scout reads along, adds what it finds, and once the worker's context was
compacted it sends a message back to a checkpoint from before. Each prints a JSON line for what it
was acknowledged, so that a test can compare the files with it.
"""

import json
import sys
from typing import Any

import anyio
import httpx2

import steno
from steno.llm import summarizer
from steno.values import DmailEvent, Reset

SESSION = "shared"
MAX_CONTEXT_SIZE = 3000
STEPS_MAX = 400
STEPS_AFTER_MAIL = 3
ADVICE = "Look into the cache first."


def emit(did: str, **facts: Any) -> None:
    """Print a fact that holds from now on."""
    print(json.dumps({"did": did, **facts}), flush=True)


# --- the worker ----------------------------------------------------------------------------------


async def work(root: str, url: str) -> None:
    """Take steps until some were taken after a D-Mail."""
    left = STEPS_AFTER_MAIL
    async with steno.connect(root, name="worker") as client:
        session = await client.open(SESSION)
        await session.write_system_prompt("You find out why the tests are slow.")
        for _ in range(STEPS_MAX):
            if mail := await session.pending_dmail():
                ack = await session.deliver_dmail(mail.id, add_user_message=True)
                emit("delivered", key=ack.key, mail=mail.message, history=len(session.history))
                left -= 1
            elif left < STEPS_AFTER_MAIL:
                left -= 1
            if not left:
                break
            await take_step(session, url)
        emit("ended", head=str(session.head), history=session.history)


async def take_step(session: steno.Session, url: str) -> None:
    """One checkpoint, one answer of the model, and a compaction when there is no room for more."""
    ack = await session.checkpoint(add_user_message=True)
    emit("checkpoint", key=ack.key, id=ack.checkpoint_id)
    answer, tokens = await ask_model(session, url)
    ack = await session.append_message({"role": "assistant", "content": answer})
    emit("append", key=ack.key)
    await session.update_token_count(tokens)
    if session.should_compact(MAX_CONTEXT_SIZE, reserved=0):
        before = session.token_count_with_pending
        done = await session.compact(summarizer(model="tiny", base_url=url))
        assert done is not None
        after = session.token_count_with_pending
        emit("compacted", key=done.ack.key, messages=done.messages, before=before, after=after)


async def ask_model(session: steno.Session, url: str) -> tuple[str, int]:
    """The model's next words, and how many tokens the context has with them."""
    messages = [
        {"role": "system", "content": session.system_prompt},
        *map(as_text, session.history),
    ]
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        asked = {"model": "tiny", "messages": messages}
        response = await http.post(f"{url}/chat/completions", json=asked)
    answer = response.raise_for_status().json()
    return answer["choices"][0]["message"]["content"], answer["usage"]["total_tokens"]


def as_text(message: dict[str, Any]) -> dict[str, Any]:
    """A message with plain text in place of its parts."""
    content = message["content"]
    parts = [{"text": content}] if isinstance(content, str) else content
    return {"role": message["role"], "content": "\n".join(part["text"] for part in parts)}


# --- the scout -----------------------------------------------------------------------------------


async def scout(root: str, _: str) -> None:
    """Report findings; after the first compaction advise the worker's past self."""
    async with steno.connect(root, name="scout") as client:
        session = await client.open(SESSION, follow=False)
        is_sent = False
        async for event in session.subscribe():
            match event:
                case Reset(why="compacted") if not is_sent:
                    is_sent = True
                    sent = await session.send_dmail(1, ADVICE)
                    emit("sent", key=sent.key)
                case DmailEvent(state="delivered"):
                    await report(session, "the mail was read")
                    return
                case steno.RecordsEvent() if not is_sent:
                    if any(each.record["role"] == "_checkpoint" for each in event.records()):
                        await report(session, f"seen up to {event.next}")
                case _:
                    pass


async def report(session: steno.Session, text: str) -> None:
    """Append a finding."""
    ack = await session.append_message({"role": "user", "content": f"[scout] {text}"})
    emit("append", key=ack.key)


if __name__ == "__main__":
    role, root, url = sys.argv[1:]
    # One loop each: neither process knows or cares what the other one runs on.
    if role == "worker":
        anyio.run(work, root, url, backend="asyncio")
    else:
        anyio.run(scout, root, url, backend="trio")
