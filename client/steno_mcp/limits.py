"""The bounds of the MCP server, each with its unit and its reason."""

from typing import Final

from steno_protocol.limits import KIB, MIB

CALLS_MAX: Final = 16
"""Tools and resources at work at once for all peers; the daemon reads for 16 requests at a time."""

LIST_PAGE: Final = 100
"""Sessions of one page of a list, unless the caller asks for another number."""

LIST_PAGE_MAX: Final = 1000
"""Sessions of one page; 1 000 entries are about 200 kB."""

RECORDS: Final = 50
"""Records of one answer, unless the caller asks for another number."""

RECORDS_MAX: Final = 1000
"""Records of one answer."""

ANSWER_BYTES_MAX: Final = 256 * KIB
"""Records of one answer as JSON: a model reads 64 000 tokens at most at once. The first record is
always there, bounded by `RECORD_BYTES_MAX`."""

RECORD_BYTES_MAX: Final = 64 * KIB
"""One record of an answer as JSON; of a longer one only the place, the role and the size are
there."""

TEXT_CHARS_MAX: Final = 10_000
"""Characters of one text in a record of an answer; an image in base64 is of no use as text."""

HITS: Final = 50
"""Hits of one search, unless the caller asks for another number."""

HITS_MAX: Final = 500
"""Hits of one search."""

HIT_CHARS_MAX: Final = 300
"""Characters of one hit: the line around the match."""

QUERY_CHARS_MAX: Final = 1000
"""Characters of the text that is searched for."""

SEARCH_S: Final = 10.0
"""Time of one search; its answer then has a cursor that continues it. Hosts wait for a minute."""

RECORDS_PER_TURN: Final = 200
"""Records that a search or a resource reads before other requests get a turn, a few
milliseconds."""

RESOURCE_BYTES_MAX: Final = 4 * MIB
"""The text of one resource; of a longer one the last part is there, and a line that says so."""

SCAN_BYTES_MAX: Final = 8 * RESOURCE_BYTES_MAX
"""Bytes of a session that are read for one resource: Markdown leaves images out, so that its end
may be a larger part of the file. 32 MiB take about two seconds."""

MESSAGES_MAX: Final = 256
"""Messages of one append: an agent appends a few, and a batch is one decision."""

URI_CHARS_MAX: Final = 1024
"""Characters of the URI of a resource: a session id has 255, each up to three as `%2F`."""

WATCHES_MAX: Final = 200
"""Resources that all peers subscribe to at once; the daemon allows 256 subscriptions to a
client."""

UPDATE_INTERVAL_S: Final = 0.1
"""Time between two updates of one resource: changes between them are one update."""

BODY_BYTES_MAX: Final = 24 * MIB
"""The body of an HTTP request: a record of 16 MiB, escaped as JSON inside JSON."""

HTTP_SESSIONS_MAX: Final = 256
"""MCP sessions over HTTP that are open at once; each costs a task and a few kilobytes."""

HTTP_IDLE_S: Final = 1800.0
"""An MCP session over HTTP ends after this time without a request or an open stream."""
