"""The session store of the Claude Agent SDK (0.2), backed by steno.

    async with steno.connect() as client:
        options = ClaudeAgentOptions(session_store=StenoSessionStore(client))

A session of the SDK is a session of steno, `claude/<project>/<session>`:

    stream-entries.jsonl     the main transcript
    stream-subkeys.jsonl     the subpaths, one record each
    stream-<digest>.jsonl    the transcript of a subpath
    stream-summary.jsonl     the summaries of the main transcript; the last one counts
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import steno
from steno.adapters._batches import batches_of, behind
from steno.adapters._names import digest_of, name_of, segment_of, segment_or_digest
from steno.adapters._optional import framework
from steno.parts import original

if TYPE_CHECKING:
    from steno import Stream

_ENTRIES: Final = "entries"
_SUBKEYS: Final = "subkeys"
_SUMMARY: Final = "summary"

Entry = dict[str, Any]
"""A transcript entry; the store interprets only its `uuid`."""

Key = Mapping[str, str]
"""A `SessionKey`: `project_key`, `session_id`, and `subpath` for a subagent."""

_Batch = tuple[list[bytes], str | None]
"""The lines of a batch and its idempotency key."""


class StenoSessionStore:
    """A `SessionStore` whose entries are on the disk when `append` returns.

    A batch is stored as a whole or not at all, once even if it is sent again; of entries with the
    same `uuid` `load` returns the first. Half a surrogate pair in an entry is kept. Every process
    with a client of the same daemon sees the same entries in one order.

    Args:
        client: an open client; its owner closes it after the last use of the store.
        prefix: the first segment of the ids of the sessions.

    Raises:
        ModuleNotFoundError: the SDK is not installed; the message names the extra.
    """

    def __init__(self, client: steno.Client, prefix: str = "claude") -> None:
        # Each append folds the summary, so a missing SDK is an error before the first one.
        self._fold = framework("claude_agent_sdk", "claude-agent-sdk").fold_session_summary
        self._client = client
        self._prefix = prefix

    async def append(self, key: Key, entries: Sequence[Mapping[str, Any]]) -> None:
        """Store a batch; batches of more than 4 096 entries are split.

        Raises:
            BadRequest, TooLarge: an entry is not JSON or too large; nothing is stored.
            StenoError: the entries could not be stored; see its `outcome`.
        """
        if not entries:
            return
        batches = _keyed(entries, batches_of(entries, self._id(key)))
        try:
            await self._append(self._client.session(self._id(key)), key, batches)
        except (steno.NotFound, steno.OutcomeUnknown) as error:
            # For a key made of uuids the daemon does not deny that a deleted session had it: only
            # the one that begins now counts, and it stores the batch once.
            if error.code != "not_found":
                raise
            session = await self._client.open(self._id(key), follow=False)
            await self._append(session, key, batches)

    async def _append(self, session: steno.Session, key: Key, batches: "Sequence[_Batch]") -> None:
        subpath = key.get("subpath")
        if subpath is not None:
            subkeys = await session.stream(_SUBKEYS)
            await subkeys.append({"subpath": subpath}, key=digest_of(subpath))
        stream = await session.stream(_stream_name(subpath))
        for lines, batch_key in batches:
            await _append_once(stream, lines, batch_key)
        if subpath is None:
            await self._summarise(session, key)

    async def load(self, key: Key) -> list[Entry] | None:
        """Return the entries in order; None if there are none."""
        stream = await self._stream(key)
        try:
            entries = [entry async for entry in _distinct(stream)]
        except steno.NotFound:
            return None
        return entries or None

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """Return the ids of a project's sessions with their last change in milliseconds."""
        prefix = f"{self._prefix}/{segment_or_digest(project_key)}/"
        found = await self._client.sessions(prefix)
        return [
            {"session_id": name_of(segment), "mtime": int(entry.modified_at * 1000)}
            for entry in found
            if "/" not in (segment := entry.session.removeprefix(prefix))
        ]

    async def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        """Return the summary of each session that has a main transcript.

        A summary that lags behind its transcript, because a process died between the two, is
        completed first.
        """
        summaries: list[dict[str, Any]] = []
        for listed in await self.list_sessions(project_key):
            key = {"project_key": project_key, "session_id": listed["session_id"]}
            session = self._client.session(self._id(key))
            try:
                summary = await self._summarise(session, key)
            except steno.NotFound:
                # It was deleted since it was listed.
                continue
            if summary is not None:
                summaries.append({**summary, "mtime": listed["mtime"]})
        return summaries

    async def delete(self, key: Key) -> None:
        """Move a session, or the transcript of one subpath, to the trash; nothing if it is gone."""
        try:
            if key.get("subpath") is None:
                await self._client.delete(self._id(key))
            else:
                await (await self._stream(key)).delete()
        except steno.NotFound:
            return

    async def list_subkeys(self, key: Key) -> list[str]:
        """Return the subpaths of a session that have a transcript."""
        session = self._client.session(self._id(key))
        try:
            present = {stream.name for stream in await session.streams()}
            records = [each async for each in (await session.stream(_SUBKEYS)).records()]
        except steno.NotFound:
            return []
        subpaths = [str(each.record["subpath"]) for each in records]
        return [each for each in subpaths if _stream_name(each) in present]

    async def _summarise(self, session: steno.Session, key: Key) -> dict[str, Any] | None:
        """Fold the entries behind the last summary into the next one; None without entries."""
        entries, summaries = await session.stream(_ENTRIES), await session.stream(_SUMMARY)
        while True:
            before = await summaries.last(1)
            expect = behind(before[0]) if before else await summaries.head()
            last = original(before[0].record) if before else {}
            summary, after = last.get("summary"), last.get("after")
            added = [record async for record in entries.records(after)]
            if not added:
                return summary
            folded = self._fold(summary, key, [original(record.record) for record in added])
            record = {"summary": folded, "after": str(behind(added[-1]))}
            [lines] = batches_of([record], self._id(key))
            try:
                await summaries.append(lines, expect=expect)
            except steno.Conflict:
                # Another process folded the same entries.
                continue
            return dict(folded)

    async def _stream(self, key: Key) -> "Stream":
        session = self._client.session(self._id(key))
        return await session.stream(_stream_name(key.get("subpath")))

    def _id(self, key: Key) -> str:
        project = segment_or_digest(key["project_key"])
        return f"{self._prefix}/{project}/{segment_of(key['session_id'])}"


def _stream_name(subpath: str | None) -> str:
    return _ENTRIES if subpath is None else digest_of(subpath)


def _keyed(entries: Sequence[Mapping[str, Any]], batches: Sequence[list[bytes]]) -> list[_Batch]:
    """Each batch with a key made of its uuids; without a uuid in each entry it is a new batch."""
    rest = iter(entries)
    keyed: list[_Batch] = []
    for lines in batches:
        uuids = [entry.get("uuid") for entry in islice(rest, len(lines))]
        keyed.append((lines, digest_of(*map(str, uuids)) if all(uuids) else None))
    return keyed


async def _append_once(stream: "Stream", lines: Sequence[bytes], key: str | None) -> None:
    try:
        ack = await stream.append(lines, key=key)
    except steno.Conflict:
        # The same uuids with other contents: stored, and `load` returns the first ones.
        await stream.append(lines)
        return
    if ack.duplicate and ack.first.generation != (await stream.head()).generation:
        # The first one was deleted since, and the transcript begins again.
        await stream.append(lines)


async def _distinct(stream: "Stream") -> AsyncIterator[Entry]:
    """The entries of a transcript without those whose uuid came before."""
    seen: set[str] = set()
    async for record in stream.records():
        uuid = record.record.get("uuid")
        if isinstance(uuid, str):
            if uuid in seen:
                continue
            seen.add(uuid)
        yield original(record.record)
