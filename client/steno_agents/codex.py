"""The rollouts of Codex: one file a session, in the order of what happened.

Since 0.32 each record is `{"timestamp", "type", "payload"}`; before that, the items stood alone.
The items of the model's interface are the conversation, and `event_msg` records repeat them for
the screen. Of those only token counts, names and withdrawn turns are used.

An old fork begins with a copy of another session, whose `session_meta` is then the second one. A
newer one names the other session as `forked_from_id`, and goes on behind its records up to the
ordinal `forked_from_ordinal_exclusive`. Those records get negative places here.
Source for forks: files of Codex 0.171.0 and the requests that it made.
"""

from collections.abc import Iterator
from math import inf
from typing import Any, ClassVar, Final

from steno_agents.limits import COMPACT_RECORD_BYTES, FORKS_MAX, PROMPTS_KEPT_BYTES
from steno_agents.prompts import is_note
from steno_agents.traces import Circumstances, Spent, Tokens, count_of
from steno_agents.transcript import (
    Converter,
    End,
    ForeignTranscript,
    History,
    Index,
    Message,
    Other,
    dated,
    image,
    object_field,
    objects,
    simple,
    text_field,
    text_of,
    tool_call,
    tool_result,
)
from steno_protocol._json import is_array, is_object, whole_number

_TYPES: Final = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
)

_ITEMS: Final = frozenset({"message", "reasoning"})

_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"}
)

_OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "tool_search_output"}
)

_IMAGE: Final = "image_generation_call"


class Codex(ForeignTranscript):
    """One file `rollout-<time>-<session>.jsonl`."""

    program: ClassVar[str] = "Codex"
    stream: ClassVar[str] = "codex"
    resume: ClassVar[tuple[str, ...]] = ("codex", "resume")
    record_bytes: ClassVar[int] = COMPACT_RECORD_BYTES
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"token_count"', b'"turn_context"')
    index: ClassVar[Index | None] = Index("session_index.jsonl", "id", "thread_name")

    def __init__(self) -> None:
        super().__init__()
        self._has_prompt = False
        self._live: list[int] = []
        # Bytes of each prompt of a person, and the places of what Codex writes before one.
        self._prompts: dict[int, int] = {}
        self._notes: set[int] = set()
        # The records of other rollouts; the last one has the place -1.
        self._inherited: list[tuple[Other, int]] = []
        # The first ordinal that a fork does not take, and the sessions on the way to it.
        self._end_ordinal: float = inf
        self._forks: tuple[str, ...] = ()

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record is a rollout's, in the present or the old form."""
        if text_field(record, "type") in _TYPES and is_object(record.get("payload")):
            return "timestamp" in record or text_field(record, "type") == "session_meta"
        return record.get("record_type") == "state" or {"id", "timestamp", "instructions"} <= set(
            record
        )

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """What the head and the begin of each turn say."""
        payload = object_field(record, "payload")
        if record.get("type") not in {"session_meta", "turn_context"}:
            return Circumstances()
        spawned = object_field(
            object_field(object_field(payload, "source"), "subagent"), "thread_spawn"
        )
        return Circumstances(
            text_field(payload, "cwd"),
            text_field(object_field(payload, "git"), "branch"),
            text_field(payload, "model"),
            text_field(spawned, "parent_thread_id"),
        )

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of the last request; an event may repeat them with new limits."""
        payload = object_field(record, "payload")
        info = object_field(payload, "info")
        usage = object_field(info, "last_token_usage")
        if payload.get("type") != "token_count" or not usage:
            return None
        cached = count_of(usage, "cached_input_tokens")
        whole = object_field(info, "total_token_usage").get("total_tokens")
        tokens = Tokens(
            input=max(0, count_of(usage, "input_tokens") - cached),
            cache_read=cached,
            output=count_of(usage, "output_tokens"),
        )
        identity = f"sum {whole}" if isinstance(whole, int) else None
        return Spent(tokens, identity, is_unique=False)

    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Learn session, directory and name, and follow the history."""
        self._records += 1
        payload = _payload(record)
        kind = text_field(record, "type")
        if kind == "session_meta" and self.session is None:
            self._inherit(payload)
        if kind in {"session_meta", "turn_context"}:
            self.session = self.session or text_field(payload, "id")
            self.work_dir = self.work_dir or text_field(payload, "cwd")
        elif "instructions" in record:
            self.session = self.session or text_field(record, "id")
        match kind:
            case "session_meta":
                self._title = text_field(payload, "thread_name") or self._title
                if not self._has_prompt and _instructions(payload) is not None:
                    self._has_prompt = True
                    self._live.insert(0, place)
            case "event_msg":
                self._event(place, payload)
            case "compacted":
                self._compacted(place, payload)
            case "turn_context":
                pass
            case _ if is_item(payload):
                self._item(place, payload)
            case _:
                pass

    def _inherit(self, meta: dict[str, Any]) -> None:
        """Begin with the conversation of the session that a fork continues."""
        parent, end = text_field(meta, "forked_from_id"), meta.get("forked_from_ordinal_exclusive")
        if parent is None or not isinstance(end, int):
            return
        # A damaged rollout may name itself.
        is_new = parent not in self._forks and len(self._forks) < FORKS_MAX
        other = self.lookup(parent) if is_new else None
        if other is None:
            self.elsewhere = parent
            return
        above = Codex()
        above.lookup, above._forks = self.lookup, (*self._forks, parent)
        above._end_ordinal = min(end, self._end_ordinal)  # its own class
        for place, record in other.records():
            is_head = text_field(record, "type") == "session_meta"
            if is_head or whole_number(record.get("ordinal")) < above._end_ordinal:
                above.scan(place, record)
        self._take_over(above, other, _instructions(meta) is not None)

    def _take_over(self, above: "Codex", other: Other, has_prompt: bool) -> None:
        """Take over the live history of another rollout."""
        taken = above._live[above._has_prompt and has_prompt :]
        self._inherited = [
            (other, place) if place >= 0 else above._inherited[place] for place in taken
        ]
        places = {place: at - len(taken) for at, place in enumerate(taken)}
        self._live = list(places.values())
        self._has_prompt = above._has_prompt and not has_prompt
        self._prompts = {places[at]: above._prompts[at] for at in taken if at in above._prompts}
        self._notes = {places[at] for at in taken if at in above._notes}
        self._words = {places[at]: above._words[at] for at in taken if at in above._words}
        self._records += above._records
        self.elsewhere = above.elsewhere

    def inherited(self, place: int) -> dict[str, Any] | None:
        """The record of another rollout at a negative place."""
        other, its = self._inherited[place]
        return other.record(its)

    def _event(self, place: int, event: dict[str, Any]) -> None:
        self._title = text_field(event, "thread_name") or self._title
        match event.get("type"):
            case "token_count" if _tokens(event):
                self._live.append(place)
            case "thread_rolled_back":
                self._roll_back(whole_number(event.get("num_turns")))
            case _:
                pass

    def _item(self, place: int, item: dict[str, Any]) -> None:
        self._live.append(place)
        role = text_field(item, "role")
        if item.get("type") != "message":
            return
        text = text_of(simple(_message_parts(item)))
        if role == "user" and not is_note(text):
            self._prompts[place] = len(text.encode(errors="replace"))
            self._note_words(place, text)
        elif role in {"user", "developer"}:
            self._notes.add(place)
        if not item.get("content") and role in {"user", "assistant"}:
            self.odd += 1

    def _roll_back(self, turns: int) -> None:
        """Withdraw the last turns, as Codex does: each begins with a prompt of a person.

        What Codex itself wrote before the first of these prompts goes with it.
        """
        prompts = [at for at, place in enumerate(self._live) if place in self._prompts]
        if turns <= 0 or not prompts:
            return
        cut = prompts[-turns] if turns < len(prompts) else prompts[0]
        while cut > prompts[0] and self._live[cut - 1] in self._notes:
            cut -= 1
        self._end(self._live[:cut], "roll-back")

    def _compacted(self, place: int, payload: dict[str, Any]) -> None:
        """Begin with the summary; older versions repeat the prompts of persons before it."""
        head = [self._live[0]] if self._has_prompt else []
        kept: list[int] = []
        if not is_array(payload.get("replacement_history")):
            room = PROMPTS_KEPT_BYTES
            for prompt in reversed([each for each in self._live if each in self._prompts]):
                room -= self._prompts[prompt]
                if room < 0:
                    break
                kept.insert(0, prompt)
        self._end([*head, *kept, place], "compaction")

    def _end(self, following: list[int], end: End) -> None:
        self._keep_past(len(self._live), self._live.copy, end)
        self._live = following

    def histories(self) -> list[History]:
        """What compactions replaced, what was withdrawn, and the live history as the last."""
        return [*self._past, History(self._live, "live")]

    def converter(self) -> Converter:
        """A converter for one history."""
        return _Conversion()


class _Conversion(Converter):
    """Converts the items one by one."""

    def messages(
        self,
        place: int,  # noqa: ARG002  # an item says all of itself
        record: dict[str, Any],
    ) -> Iterator[Message]:
        """Convert a record of the conversation, or a token count."""
        payload = _payload(record)
        match record.get("type"):
            case "session_meta":
                prompt = _instructions(payload)
                if prompt is not None:
                    yield {"role": "_system_prompt", "content": prompt}
            case "event_msg":
                yield {"role": "_usage", "token_count": _tokens(payload)}
            case "compacted":
                replacement = payload.get("replacement_history")
                if is_array(replacement):
                    for item in objects(replacement):
                        yield from (dated(each, record) for each in _item_messages(item))
                elif (summary := text_field(payload, "message")) is not None:
                    yield dated({"role": "user", "content": summary}, record)
            case _:
                yield from (dated(each, record) for each in _item_messages(payload))


def is_item(item: dict[str, Any]) -> bool:
    """Whether an object is an item of the model's interface that becomes a message."""
    return text_field(item, "type") in {*_ITEMS, *_CALLS, *_OUTPUTS, _IMAGE}


def _item_messages(item: dict[str, Any]) -> Iterator[Message]:
    kind = text_field(item, "type")
    if kind == "message":
        parts = _message_parts(item)
        if parts:
            yield {"role": text_field(item, "role") or "assistant", "content": simple(parts)}
    elif kind == "reasoning":
        thoughts = [*objects(item.get("summary")), *objects(item.get("content"))]
        texts = [text for each in thoughts if (text := text_field(each, "text")) is not None]
        if texts:
            part = {"type": "think", "think": "\n\n".join(texts)}
            yield {"role": "assistant", "content": [part]}
    elif kind in _CALLS:
        yield {"role": "assistant", "content": [], "tool_calls": [_call(item)]}
    elif kind in _OUTPUTS:
        output = item.get("output")
        failed = is_object(output) and output.get("success") is False
        yield tool_result(item.get("call_id"), _output(output), failed=failed)
    elif kind == _IMAGE and (data := text_field(item, "result")) is not None:
        yield {"role": "assistant", "content": [image(f"data:image/png;base64,{data}")]}


def _payload(record: dict[str, Any]) -> dict[str, Any]:
    """The item of a record; a record of the old form is the item itself."""
    return object_field(record, "payload") or record


def _instructions(meta: dict[str, Any]) -> str | None:
    base = object_field(meta, "base_instructions")
    return text_field(base, "text") or text_field(meta, "instructions")


def _tokens(event: dict[str, Any]) -> int:
    """The size of the context after a request; 0 if an event does not name it."""
    usage = object_field(object_field(event, "info"), "last_token_usage")
    return whole_number(usage.get("total_tokens"))


def _call(item: dict[str, Any]) -> dict[str, Any]:
    kind = str(item.get("type"))
    name = text_field(item, "name") or kind.removesuffix("_call")
    arguments = item.get("arguments", item.get("input", item.get("action", {})))
    return tool_call(item.get("call_id") or item.get("id"), name, arguments)


def _output(output: object) -> str | list[dict[str, Any]]:
    """The result of a tool: a text, parts, or an object with one of them as `content`."""
    if is_object(output):
        return _output(output.get("content", ""))
    if is_array(output):
        return simple([_part(part) for part in objects(output)])
    return output if isinstance(output, str) else ""


def _message_parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_part(part) for part in objects(content)]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a part of a content; an unknown one stays as it is."""
    kind = text_field(part, "type")
    if kind in {"input_text", "output_text", "text"}:
        return {"type": "text", "text": str(part.get("text", ""))}
    if kind == "input_image":
        url = part.get("image_url")
        return image(str(url.get("url")) if is_object(url) else str(url))
    return part
