"""Sessions as resources: the list, the templates, and the text of one."""

from datetime import UTC, datetime
from typing import Final

import mcp_types as types
import msgspec

from steno import Client
from steno_mcp.addresses import MIME_TYPES, ROOT, TEMPLATES, Address
from steno_mcp.errors import protocol_error
from steno_mcp.limits import LIST_PAGE
from steno_mcp.texts import text_of
from steno_mcp.tools import Source, get_session
from steno_mcp.values import OneSession
from steno_protocol.errors import NotFound, StenoError
from steno_protocol.paths import split_session
from steno_protocol.replies import SessionEntry
from steno_redact.records import masked_entry
from steno_redact.redactor import Redactor

_ADDRESSES: Final = frozenset({"session", "head", "forked_from"})


class Resources:
    """The resources of one server."""

    def __init__(self, client: Client, redactor: Redactor) -> None:
        self._client = client
        self._redactor = redactor

    async def page(self, cursor: str | None) -> types.ListResourcesResult:
        """A page of the sessions, ordered by id; the cursor is the last id of the page before."""
        try:
            if cursor is not None:
                split_session(cursor)
            found = await self._client.sessions(
                archived="no", after=cursor or "", limit=LIST_PAGE + 1
            )
        except StenoError as error:
            raise protocol_error(error, None, self._redactor.text) from None
        shown = found[:LIST_PAGE]
        return types.ListResourcesResult(
            resources=[_resource(masked_entry(self._redactor, entry)) for entry in shown],
            next_cursor=shown[-1].session if len(found) > len(shown) else None,
        )

    async def read(self, uri: str) -> types.ReadResourceResult:
        """The text of one resource.

        Raises:
            MCPError: there is no such resource, or it cannot be read.
        """
        try:
            address = Address.parse(uri)
            text = await self._text(address)
        except StenoError as error:
            raise protocol_error(error, uri, self._redactor.text) from None
        mime_type = MIME_TYPES[address.view]
        contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _text(self, address: Address) -> str:
        if address.view == "state":
            source = Source(self._client, self._redactor)
            state = await get_session(source, OneSession(session=address.session))
            shown = self._redactor.fields(msgspec.to_builtins(state), _ADDRESSES)
            return msgspec.json.encode(shown).decode()
        if address.view == "stream":
            await self._check_stream(address)
        return await text_of(self._client, self._redactor, address)

    async def _check_stream(self, address: Address) -> None:
        # A missing stream reads as empty, but it is no resource.
        streams = await self._client.session(address.session).streams()
        if address.stream not in {each.name for each in streams}:
            raise NotFound(
                f"there is no stream {address.stream!r}: {Address(address.session)} lists the"
                " streams of the session",
                session=address.session,
            )


def templates() -> types.ListResourceTemplatesResult:
    """The forms of the URIs."""
    found = [
        types.ResourceTemplate(
            uri_template=f"{ROOT}{form}",
            name=f"session {view}",
            description=f"{description} A slash in the session id is written %2F.",
            mime_type=MIME_TYPES[view],
        )
        for form, view, description in TEMPLATES
    ]
    return types.ListResourceTemplatesResult(resource_templates=found)


def _resource(entry: SessionEntry) -> types.Resource:
    modified = datetime.fromtimestamp(entry.modified_at, UTC).isoformat(timespec="seconds")
    described = [f"{entry.bytes} bytes", *(f"label {each}" for each in entry.labels)]
    return types.Resource(
        uri=str(Address(entry.session)),
        name=entry.session,
        title=entry.title or None,
        description=f"A session of agents: {', '.join(described)}.",
        mime_type=MIME_TYPES["state"],
        annotations=types.Annotations(last_modified=modified),
    )
