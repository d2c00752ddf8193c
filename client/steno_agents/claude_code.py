"""The transcripts of Claude Code: one file a session, its records a tree.

Each record with a `uuid` names its parent. An edited prompt gets the same parent as the prompt that
it replaces, and two terminals on one session continue it in two branches. A compaction begins a new
tree: its boundary has no parent, and names the record before it as `logicalParentUuid`. One answer
of the model is several records with the same `message.id`, one for each part of its content.

The live branch is the one with the last record, unless a `last-prompt` after it names another leaf.
"""

import copy
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple

from steno_agents.limits import COMPACT_RECORD_BYTES, QUEUED_MAX
from steno_agents.traces import Circumstances, Spent, Tokens, count_of
from steno_agents.transcript import (
    Converter,
    End,
    ForeignTranscript,
    History,
    Message,
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
from steno_agents.tree import Marks, Stem, Tree, marked
from steno_protocol._json import is_array, is_object, whole_number

_TITLES: Final = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
"""The field with the title, by type of record; types of records that a user sets come first."""

_USAGE: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)

_COUNTED: Final = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
)
"""The fields of a usage in the order of `Tokens`."""

_SYNTHETIC: Final = "<synthetic>"
"""The model of answers that no model gave."""

_SPOKEN: Final = frozenset({"user", "assistant"})


class ClaudeCode(ForeignTranscript):
    """One file `<session>.jsonl` of a project folder, or `agent-<id>.jsonl` of a subagent."""

    program: ClassVar[str] = "Claude Code"
    stream: ClassVar[str] = "claude-code"
    is_named_by_file: ClassVar[bool] = True
    record_bytes: ClassVar[int] = COMPACT_RECORD_BYTES
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"usage"',)
    companions: ClassVar[tuple[str, ...]] = ("tool-results",)
    beside: ClassVar[Mapping[str, str]] = {
        "file-history-snapshot": "snapshot",
        "queue-operation": "operation",
        "custom-title": "customTitle",
        "ai-title": "aiTitle",
        "last-prompt": "lastPrompt",
        "summary": "leafUuid",
    }

    def __init__(self) -> None:
        super().__init__()
        self._titles: dict[str, str] = {}
        self._summaries: dict[str, str] = {}
        self._main = Tree()
        # The conversations of subagents; the file of a subagent has no other.
        self._side = Tree()
        self._leaf: tuple[int, str] | None = None
        self._boundaries: dict[tuple[Tree, int], _Boundary] = {}
        # The tree of the live branch, and the beginning of that.
        self._stem: tuple[Tree, Stem | None] = self._main, None
        self._queue: deque[str] = deque()
        # By the record of the main tree before them.
        self._delivered: dict[int, list[tuple[int, str]]] = {}
        # The same prompts by their places; a converter sees those that come later, too.
        self._delivered_at: dict[int, str] = {}
        self._prompts: set[str] = set()

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record is a message in the tree of a session, with a content as of Claude."""
        is_node = text_field(record, "uuid") is not None and "parentUuid" in record
        return (
            is_node
            and text_field(record, "sessionId") is not None
            and text_field(record, "type") in _SPOKEN
            and _content(record) is not None
        )

    @classmethod
    def is_record(cls, record: dict[str, Any]) -> bool:
        """Whether an object has the type and session of a record."""
        has_session = text_field(record, "sessionId") is not None
        return (has_session and text_field(record, "type") is not None) or cls.hints(record)

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """The directory and branch of any record, and the model of an answer."""
        model = text_field(object_field(record, "message"), "model")
        return Circumstances(
            text_field(record, "cwd"),
            text_field(record, "gitBranch"),
            # Claude Code itself says that an answer was interrupted or failed.
            None if model == _SYNTHETIC else model,
        )

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of an answer, which each of its parts repeats."""
        message = object_field(record, "message")
        usage = object_field(message, "usage")
        if record.get("type") != "assistant" or not usage or message.get("model") == _SYNTHETIC:
            return None
        tokens = Tokens(*(count_of(usage, name) for name in _COUNTED))
        return Spent(tokens, text_field(message, "id"), text_field(message, "model"))

    @classmethod
    def resuming(cls, session: str) -> Sequence[str]:
        """`claude --resume`; a subagent's session is none of its own."""
        return () if session.startswith("agent-") else ("claude", "--resume", session)

    @property
    def own_title(self) -> str | None:
        """The title that the user gave, else the one that a model gave."""
        given = next((self._titles[each] for each in _TITLES if each in self._titles), None)
        # A summary may be of a conversation in another file.
        known = [self._summaries[leaf] for leaf in self._summaries if leaf in self._tree]
        return given or next(reversed(known), None)

    @property
    def _tree(self) -> Tree:
        return self._main if self._main.speaks or not self._side.speaks else self._side

    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Learn titles, the directory, the tree, and the prompts that waited in the queue."""
        self._records += 1
        kind = text_field(record, "type")
        if kind == "summary":
            self._summaries[str(record.get("leafUuid"))] = text_field(record, "summary") or ""
        elif kind in _TITLES and (title := text_field(record, _TITLES[kind])) is not None:
            self._titles[kind] = title
        elif kind == "queue-operation":
            self._queued(place, record)
        elif kind == "last-prompt" and (leaf := text_field(record, "leafUuid")) is not None:
            self._leaf = (place, leaf)
        self.session = self.session or text_field(record, "sessionId")
        self.work_dir = self.work_dir or text_field(record, "cwd")
        uuid = text_field(record, "uuid")
        if uuid is not None:
            self._node(place, uuid, record)

    def _node(self, place: int, uuid: str, record: dict[str, Any]) -> None:
        kind, content = text_field(record, "type"), _content(record)
        parts = _parts(content)
        answer = object_field(record, "message") if kind == "assistant" else {}
        queued = _queued_prompt(record)
        is_note = record.get("isMeta") is True or _is_unsent(record)
        is_prompt = kind == "user" and not is_note
        speaks = queued is not None or bool(parts and (is_prompt or kind == "assistant"))
        self.odd += kind in _SPOKEN and content is None
        tree = self._side if record.get("isSidechain") is True else self._main
        number = tree.add(
            uuid,
            place,
            text_field(record, "parentUuid"),
            group=text_field(answer, "id"),
            calls=[str(each.get("id")) for each in parts if each.get("type") == "tool_use"],
            answers=[
                str(each.get("tool_use_id")) for each in parts if each.get("type") == "tool_result"
            ],
            speaks=speaks,
        )
        if queued is not None:
            self._prompts.add(text_of(queued))
            self._stem = tree, None
            self._note_words(place, text_of(queued))
        elif is_prompt and not record.get("isCompactSummary"):
            self._note_words(place, text_of(content))
        if text_field(record, "subtype") == "compact_boundary":
            self._boundaries[tree, number] = _boundary(record)

    def _queued(self, place: int, record: dict[str, Any]) -> None:
        """Follow the queue of prompts that were typed while the model worked.

        `remove` gives the oldest one to the model. Older versions write no other record of it, and
        newer ones an attachment. `dequeue` is followed by a record of the prompt.
        """
        match record.get("operation"):
            case "enqueue" if len(self._queue) < QUEUED_MAX:
                self._queue.append(text_of(record.get("content")))
            case "remove" if self._queue:
                prompt, before = self._queue.popleft(), len(self._main) - 1
                if before >= 0 and _is_typed(prompt):
                    self._delivered.setdefault(before, []).append((place, prompt))
                    self._delivered_at[place] = prompt
            case "dequeue" if self._queue:
                self._queue.popleft()
            case "popAll":
                self._queue.clear()
            case _:
                pass

    def live(self) -> Sequence[int]:
        """The places of the live branch; of a long one, only the end is made anew."""
        tree, stem = self._tree, self._stem[1]
        leaf = self._live_leaf(tree)
        if leaf is None:
            return ()
        tail = tree.tail(leaf, stem) if self._stem[0] is tree else None
        if stem is not None and tail is not None:
            chosen = tree.with_siblings(tail)
            queued = self._queued_among(tree, chosen, stem)
            return stem.places + tree.places(chosen, queued)
        path = tree.path(leaf)
        chosen = self._chosen(tree, path)
        places = self._places(tree, path, chosen)
        self._stem = tree, tree.stem(path, places, max(self._head(tree, path, chosen)))
        return places

    def histories(self) -> list[History]:
        """What compactions replaced, the other branches, and the live branch as the last."""
        tree = self._tree
        leaf = self._live_leaf(tree)
        if leaf is None:
            return []
        self.unread, self._past_records = 0, 0
        live = tree.path(leaf)
        chosen = self._chosen(tree, live)
        places, covered, past = self._places(tree, live, chosen), chosen, list[History]()
        compacted = [self._before(tree, live)]
        newest = tree.newest_first()
        while True:
            end = compacted.pop() if compacted else None
            kind: End = "branch" if end is None else "compaction"
            end = next((each for each in newest if not covered[each]), None) if end is None else end
            if end is None:
                break
            # A compaction may have kept the last records of what it replaced.
            above = tree.path(end, until=covered if kind == "branch" else None)
            new = [each for each in above if not covered[each]]
            says = any(map(tree.speaks_at, new))
            # Once one is too many, later ones are only counted: each takes a walk to its root.
            if self.unread:
                self.unread += says
                chosen = tree.with_siblings(new)
            else:
                path = tree.path(end)
                chosen = self._chosen(tree, path)
                compacted += [self._before(tree, path)] if says else []
                if says and self._has_room(chosen.count(1)):
                    past.append(History(self._places(tree, path, chosen), kind))
            for each in marked(chosen):
                covered[each] = 1
        past.sort(key=lambda each: max(each.places))
        return [*past, History(places, "live")]

    def _live_leaf(self, tree: Tree) -> int | None:
        last = next(tree.newest_first(), None)
        if last is None or self._leaf is None:
            return last
        place, identity = self._leaf
        leaf = tree.number(identity)
        if leaf is None or place < tree.place(last) or tree.is_above(leaf, last):
            return last
        return leaf

    def _chosen(self, tree: Tree, path: "array[int]") -> Marks:
        """The records of the history that has a path."""
        boundary = self._boundaries.get((tree, path[-1]))
        kept = () if boundary is None else self._kept(tree, boundary)
        return tree.with_siblings(chain(path, kept))

    def _kept(self, tree: Tree, boundary: "_Boundary") -> Iterable[int]:
        """The records that a compaction left as they were."""
        head, tail = tree.number(boundary.head), tree.number(boundary.tail)
        if boundary.kept or head is None or tail is None:
            found = map(tree.number, boundary.kept)
            return [each for each in found if each is not None]
        path = tree.path(tail)
        return path[: path.index(head) + 1] if head in path else ()

    def _before(self, tree: Tree, path: "array[int]") -> int | None:
        """The record before the compaction that a history begins with; None without one."""
        boundary = self._boundaries.get((tree, path[-1]))
        before = None if boundary is None else boundary.before
        return None if before is None else tree.number(before)

    def _head(self, tree: Tree, path: "array[int]", chosen: Marks) -> tuple[int, int]:
        """The first and the last record of what stands before the messages that were kept."""
        boundary = self._boundaries.get((tree, path[-1]))
        if boundary is None:
            return 0, 0
        anchor = tree.number(boundary.anchor)
        # Without an anchor, the summary is the record after the boundary.
        return path[-1], path[-2:][0] if anchor is None or not chosen[anchor] else anchor

    def _places(self, tree: Tree, path: "array[int]", chosen: Marks) -> "array[int]":
        """The places of a history: a summary comes first, and then the messages that it kept."""
        places = tree.places(chosen, self._queued_among(tree, chosen))
        if (tree, path[-1]) not in self._boundaries:
            return places
        begin, after = map(tree.place, self._head(tree, path, chosen))
        head = (place for place in places if begin <= place <= after)
        kept = (place for place in places if place < begin)
        later = (place for place in places if place > max(begin, after))
        return array("q", chain(head, kept, later))

    def _queued_among(self, tree: Tree, chosen: Marks, stem: Stem | None = None) -> list[int]:
        """The places of the prompts that were typed behind some records, or behind a stem."""
        if tree is not self._main:
            return []
        first = -1 if stem is None else stem.number
        return [
            place
            for before, prompts in self._delivered.items()
            if chosen[before] or before == first
            for place, prompt in prompts
            if prompt not in self._prompts and (stem is None or place > tree.place(first))
        ]

    def converter(self) -> Converter:
        """A converter for one history."""
        return _Conversion(self._delivered_at)


class _Conversion(Converter):
    """Collects the parts of an answer; prompts of the queue wait until the results are there."""

    def __init__(self, delivered: dict[int, str]) -> None:
        self._delivered = delivered
        self._queued: list[Message] = []
        self._answer: Message | None = None
        self._answer_id: str | None = None
        self._answer_tokens: int | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Conversion":
        """Copy what waits; the prompts are the transcript's."""
        other = _Conversion(self._delivered)
        other._queued = copy.deepcopy(self._queued, memo)
        other._answer = copy.deepcopy(self._answer, memo)
        other._answer_id, other._answer_tokens = self._answer_id, self._answer_tokens
        return other

    def messages(self, place: int, record: dict[str, Any]) -> Iterator[Message]:
        """Convert a record of the conversation."""
        kind = text_field(record, "type")
        if kind == "queue-operation":
            prompt: Message = {"role": "user", "content": self._delivered.get(place, "")}
            self._queued.append(dated(prompt, record))
        elif kind == "assistant" and not _is_unsent(record):
            yield from self._answer_part(record, object_field(record, "message"))
        elif (queued := _queued_prompt(record)) is not None:
            yield from self._end_answer()
            content = simple([_part(each) for each in _parts(queued)])
            yield dated({"role": "user", "content": content}, record)
        elif kind == "user" and not _is_unsent(record):
            yield from self._end_answer()
            for converted in _user_messages(record):
                if converted["role"] == "user":
                    yield from self._end_queue()
                yield dated(converted, record)

    def finish(self) -> Iterator[Message]:
        """Yield the answer whose parts were collected, and the prompts that came last."""
        yield from self._end_answer()
        yield from self._end_queue()

    def _end_queue(self) -> Iterator[Message]:
        yield from self._queued
        self._queued.clear()

    def _end_answer(self) -> Iterator[Message]:
        """Yield the answer whose parts were collected, and its token count."""
        answer, tokens = self._answer, self._answer_tokens
        self._answer, self._answer_id, self._answer_tokens = None, None, None
        if answer is None or not (answer["content"] or answer.get("tool_calls")):
            return
        answer["content"] = simple(answer["content"])
        yield answer
        if tokens is not None:
            yield {"role": "_usage", "token_count": tokens}

    def _answer_part(self, record: dict[str, Any], message: dict[str, Any]) -> Iterator[Message]:
        identity = text_field(message, "id") or text_field(record, "uuid")
        if identity != self._answer_id or self._answer is None:
            yield from self.finish()
            self._answer = dated({"role": "assistant", "content": []}, record)
            self._answer_id = identity
        for part in _parts(message.get("content")):
            if part.get("type") == "tool_use":
                call = tool_call(part.get("id"), part.get("name"), part.get("input", {}))
                self._answer.setdefault("tool_calls", []).append(call)
            else:
                self._answer["content"].append(_part(part))
        usage = object_field(message, "usage")
        if any(name in usage for name in _USAGE):
            self._answer_tokens = sum(whole_number(usage.get(name)) for name in _USAGE)


def _user_messages(record: dict[str, Any]) -> Iterator[Message]:
    """The results of tools in a user record, each a message, and then the rest of it."""
    rest: list[dict[str, Any]] = []
    parts = _parts(_content(record))
    for part in parts:
        if part.get("type") == "tool_result":
            content = [_part(each) for each in _parts(part.get("content"))]
            if len(parts) == 1 and all(each.get("type") != "image_url" for each in content):
                content += _shown_images(record)
            failed = part.get("is_error") is True
            yield tool_result(part.get("tool_use_id"), simple(content), failed=failed)
        else:
            rest.append(_part(part))
    if rest:
        yield {"role": "user", "content": simple(rest)}


def _content(record: dict[str, Any]) -> str | list[Any] | None:
    """The content of a record's message; None if it has none in a form of Claude's."""
    content = object_field(record, "message").get("content")
    if isinstance(content, str):
        return content
    if is_array(content) and all(is_object(part) and text_field(part, "type") for part in content):
        return content
    return None


def _parts(content: object) -> list[dict[str, Any]]:
    """The parts of a content that say something."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
    return [
        part
        for part in parts
        if (kind := part.get("type")) not in {"text", "thinking"} or part.get(str(kind))
    ]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a part of a content; an unknown one stays as it is."""
    match part.get("type"):
        case "text":
            return {"type": "text", "text": str(part.get("text", ""))}
        case "thinking":
            return {"type": "think", "think": str(part.get("thinking", ""))}
        case "image":
            return _image(part) or part
        case _:
            return part


def _image(part: dict[str, Any]) -> dict[str, Any] | None:
    """An image of a message, or of a tool of the Model Context Protocol; None in another form."""
    source = object_field(part, "source") or part
    media = text_field(source, "media_type") or text_field(source, "mimeType")
    data, url = text_field(source, "data"), text_field(source, "url")
    if data is not None:
        return image(f"data:{media or 'image/png'};base64,{data}")
    return None if url is None else image(url)


def _shown_images(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The image that a tool made and that only the record for the screen has."""
    result = object_field(record, "toolUseResult")
    file = object_field(result, "file")
    data = text_field(file, "base64")
    if result.get("type") == "image" and data is not None:
        yield image(f"data:{text_field(file, 'type') or 'image/png'};base64,{data}")


def _queued_prompt(record: dict[str, Any]) -> object:
    """The content of a prompt that was typed while the model worked; None in other records."""
    attachment = object_field(record, "attachment")
    if record.get("type") != "attachment" or attachment.get("type") != "queued_command":
        return None
    is_prompt = attachment.get("commandMode", "prompt") == "prompt"
    prompt = attachment.get("prompt")
    return prompt if is_prompt and _parts(prompt) else None


class _Boundary(NamedTuple):
    """The begin of the tree after a compaction.

    Attributes:
        before: the record before the compaction.
        anchor: the record that the kept messages follow, which has the summary.
        kept: the records that stay in the conversation.
        head: the first of them, in versions that name only the first and the last.
        tail: the last of them.
    """

    before: str | None
    anchor: str
    kept: tuple[str, ...]
    head: str
    tail: str


def _boundary(record: dict[str, Any]) -> _Boundary:
    metadata = object_field(record, "compactMetadata")
    messages = object_field(metadata, "preservedMessages")
    messages = messages or object_field(record, "preservedMessages")
    segment = object_field(metadata, "preservedSegment")
    uuids = messages.get("uuids")
    return _Boundary(
        text_field(record, "logicalParentUuid"),
        text_field(messages, "anchorUuid") or text_field(segment, "anchorUuid") or "",
        tuple(each for each in uuids if isinstance(each, str)) if is_array(uuids) else (),
        text_field(segment, "headUuid") or "",
        text_field(segment, "tailUuid") or "",
    )


def _is_unsent(record: dict[str, Any]) -> bool:
    """Whether a message is only shown: an error of the service, or one that is marked so.

    Notes of the program, which have `isMeta`, are sent.
    """
    return record.get("isVirtual") is True or record.get("isApiErrorMessage") is True


def _is_typed(prompt: str) -> bool:
    """Whether a queued prompt is a person's, and no note that a task has ended."""
    return bool(prompt.strip()) and not prompt.lstrip().startswith("<task-notification>")
